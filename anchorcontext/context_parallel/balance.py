"""Policies that balance rows and work together: `hybrid` and `chunks`.

Every rank gets at most ceil(rows / ranks) rows, whatever the lengths, and as nearly equal work
(query-key pairs) as the documents allow. Both place whole documents where they can, cut where they
must, and end the same way: what is left is cut to fill each rank's last rows with the work it lacks.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from anchorcontext.context_parallel.rows import SegmentedRows, Shares

_CRUMBS_A_RANK = 32
_MAX_CRUMBS = 16_384
_TRIES = 8
"""Least-loaded ranks that are looked at for one with enough rows, before a document is cut."""


@dataclass
class _Item:
    """A document, what is left of it, or a bundle of neighbouring short ones."""

    place: int
    """Of the document's first row, or of a bundle's."""
    first: int
    """Rows [first, end) of it are left."""
    end: int
    density: float | None
    """Pairs per row of a bundle, on average. None: a document, whose row i has i + 1 pairs."""

    @property
    def rows(self) -> int:
        return self.end - self.first

    @property
    def work(self) -> float:
        return self.work_of(self.first, self.end)

    def work_of(self, first: int, end: int) -> float:
        if self.density is not None:
            return self.density * (end - first)
        return (end - first) * (end + first + 1) / 2

    def rows_from_end(self, rows: int, work: float) -> int:
        """How many of `rows` rows to take from its end, the others from its front, so that they make up `work`.

        With A, B = first, end and b rows from the end, `rows` rows from the front have
        rows * (A + rows / 2) pairs, and each that moves to the end has B - A - rows pairs more.
        """
        if self.density is not None or rows >= self.rows:
            return 0
        missing = work - self.work_of(self.first, self.first + rows)
        return min(max(round(missing / (self.rows - rows)), 0), rows)


class _Ledger:
    """What every rank was given, and how many rows it still takes."""

    def __init__(self, window: SegmentedRows, ranks: int) -> None:
        lengths = np.diff(window.segment_offsets)
        self.window = window
        self.ranks = range(ranks)
        self.room = [-(-window.num_rows // ranks)] * ranks
        self.work = [0.0] * ranks
        self.work_a_rank = float((lengths * (lengths + 1)).sum()) / 2 / ranks
        self._starts: list[int] = []
        self._owners: list[int] = []

    def give(self, rank: int, item: _Item, first: int, end: int) -> None:
        """Rows [first, end) of an item."""
        if first < end:
            self._starts.append(item.place + first)
            self._owners.append(rank)
            self.room[rank] -= end - first
            self.work[rank] += item.work_of(first, end)

    def give_ends(self, rank: int, item: _Item, rows: int, from_end: int) -> None:
        """`rows` rows of an item, `from_end` of them from its end, the others from its front: off it."""
        first, end = item.first + rows - from_end, item.end - from_end
        self.give(rank, item, item.first, first)
        self.give(rank, item, end, item.end)
        item.first, item.end = first, end

    def lacking(self, rank: int) -> float:
        return self.work_a_rank - self.work[rank]

    def shares(self) -> Shares:
        """The shares, once all items are given; padding goes where there is room."""
        place = int(self.window.segment_offsets[-1])
        for rank in self.ranks:
            rows = min(self.room[rank], self.window.num_rows - place)
            if rows:
                self._starts.append(place)
                self._owners.append(rank)
                place += rows
        starts, owners = np.array(self._starts, dtype=np.int64), np.array(self._owners, dtype=np.int64)
        by_place = np.argsort(starts)
        return Shares.cut(self.window, starts[by_place], owners[by_place])


def hybrid(window: SegmentedRows, ranks: int, *, long: float, spread: float) -> Shares:
    """Long documents zigzagged over ranks, short ones whole on the least-loaded rank.

    Args:
        long: from which share of the rows of the longest document that one rank's work can hold on.
        spread: over how many times as many ranks as its work needs a long document goes.
    """
    ledger = _Ledger(window, ranks)
    long_items, short_items = _split(ledger, long)
    least_loaded = _with_room(ledger, ledger.ranks)
    for item in long_items:
        parts = math.ceil(min(spread * item.work / ledger.work_a_rank, ranks))
        parts = max(parts, math.ceil(item.rows / -least_loaded[0][1]))
        took: list[int] = []
        while item.rows:
            if not least_loaded:  # some had too few rows for their part: the others take more
                least_loaded, took = _with_room(ledger, took), []
            rank = heapq.heappop(least_loaded)[-1]
            rows = min(math.ceil(item.rows / parts), ledger.room[rank])
            ledger.give_ends(rank, item, rows, rows - rows // 2)
            parts = max(parts - 1, 1)
            took.append(rank)
        for entry in _with_room(ledger, took):
            heapq.heappush(least_loaded, entry)
    _fill_up(ledger, short_items)
    return ledger.shares()


def _with_room(ledger: _Ledger, ranks: Iterable[int]) -> list[tuple[float, int, int]]:
    """A heap of those that take more rows: the least loaded first, of these the one with most room."""
    return sorted((ledger.work[rank], -ledger.room[rank], rank) for rank in ranks if ledger.room[rank])


def chunks(window: SegmentedRows, ranks: int, *, long: float) -> Shares:
    """Long documents, longest first: whole where a rank has just enough to spare, else cut in chunks.

    Each chunk fills the rank with most to spare, so few ranks see a document. Ranks fill up by what a
    document has above the short ones' mean work per row, for those fill the rows that remain.

    Args:
        long: as in `hybrid`.
    """
    ledger = _Ledger(window, ranks)
    long_items, short_items = _split(ledger, long)
    short_work = sum(item.work for item in short_items)
    other_rows = window.num_rows - sum(item.rows for item in long_items)  # of short ones, and padding
    usual = short_work / other_rows if other_rows else 0.0
    to_spare = ledger.work_a_rank - usual * window.num_rows / ranks
    spare = [(to_spare, rank) for rank in ledger.ranks if ledger.room[rank]]  # ascending
    for item in long_items:
        while item.rows:
            above = item.work - usual * item.rows
            index = bisect_left(spare, (above - _NEAR * ledger.work_a_rank, -1))
            while index < len(spare) and ledger.room[spare[index][1]] < item.rows:
                index += 1
            takes_all = index < len(spare)
            before, rank = spare.pop(index if takes_all else -1)
            if takes_all:
                ledger.give_ends(rank, item, item.rows, 0)
            else:
                _fill_rank(ledger, rank, item, max(before, 0.0), usual)
            if ledger.room[rank]:
                insort(spare, (before - above if takes_all else 0.0, rank))
    _fill_up(ledger, short_items)
    return ledger.shares()


_NEAR = 0.01
"""A document still fits a rank if it exceeds the rank's share by at most this fraction of a rank's work."""


def _fill_rank(ledger: _Ledger, rank: int, item: _Item, spare: float, usual: float) -> None:
    """Cut off the part of an item that has `spare` pairs more than `usual` per row.

    From its front if the rank has the rows: then the two sides of the cut share the fewest keys. Otherwise
    as many rows as there is room for, from both ends.
    """
    room = min(ledger.room[rank], item.rows)
    # Rows [A, c) have (c - A) * (c + A) / 2 - usual * (c - A) to spare.
    rows = int(usual + math.sqrt((item.first - usual) ** 2 + 2 * spare)) - item.first
    if 0 < rows <= room:
        ledger.give_ends(rank, item, rows, 0)
    else:
        ledger.give_ends(rank, item, room, item.rows_from_end(room, spare + usual * room))


def _fill_up(ledger: _Ledger, items: list[_Item]) -> None:
    """Assign items, most work first: whole to the least-loaded rank with the rows, and the rest cut."""
    heap = [(ledger.work[rank], rank) for rank in ledger.ranks if ledger.room[rank]]
    heapq.heapify(heap)
    to_cut = []
    for item in items:
        too_small: list[tuple[float, int]] = []
        while heap and len(too_small) < _TRIES and ledger.room[heap[0][1]] < item.rows:
            too_small.append(heapq.heappop(heap))
        if heap and ledger.room[heap[0][1]] >= item.rows:
            rank = heap[0][1]
            ledger.give_ends(rank, item, item.rows, 0)
            if ledger.room[rank]:
                heapq.heapreplace(heap, (ledger.work[rank], rank))
            else:
                heapq.heappop(heap)
        else:
            to_cut.append(item)
        for entry in too_small:
            heapq.heappush(heap, entry)
    _cut_to_fit(ledger, to_cut)


def _cut_to_fit(ledger: _Ledger, items: list[_Item]) -> None:
    """Fill rank after rank to its last row, those that lack most work per row with the densest items."""
    with_room = [rank for rank in ledger.ranks if ledger.room[rank]]
    with_room.sort(key=lambda rank: -ledger.lacking(rank) / ledger.room[rank])
    waiting = iter(items)
    item = next(waiting, None)
    for rank in with_room:
        while item is not None and ledger.room[rank]:
            rows = min(item.rows, ledger.room[rank])
            ledger.give_ends(rank, item, rows, item.rows_from_end(rows, ledger.lacking(rank)))
            if not item.rows:
                item = next(waiting, None)


def _split(ledger: _Ledger, long: float) -> tuple[list[_Item], list[_Item]]:
    """Long documents and the rest, each by decreasing work."""
    limit = long * math.sqrt(2 * ledger.work_a_rank)  # a document of n rows has n * n / 2 pairs
    items = _items(ledger.window, len(ledger.room))
    split = next((number for number, item in enumerate(items) if item.rows <= limit or item.density is not None), None)
    return items[:split], [] if split is None else items[split:]


def _items(window: SegmentedRows, ranks: int) -> list[_Item]:
    """All documents by decreasing work, neighbouring short ones bundled: a plan's time is by the item."""
    places, lengths = window.segment_offsets[:-1], np.diff(window.segment_offsets)
    if not len(lengths):
        return []
    crumb = max(window.num_rows // (_CRUMBS_A_RANK * ranks), window.num_rows // _MAX_CRUMBS, 1)
    short = lengths <= crumb // 2
    bundle = np.where(short, np.cumsum(lengths * short) // crumb, -1)
    opens = np.ones(len(lengths), dtype=bool)
    opens[1:] = ~short[1:] | (bundle[1:] != bundle[:-1])
    first = np.flatnonzero(opens)
    rows = np.add.reduceat(lengths, first)
    work = np.add.reduceat(lengths * (lengths + 1) // 2, first)
    documents = np.diff(np.append(first, len(lengths)))
    order = np.argsort(-work, kind="stable")
    return [
        _Item(place, 0, of_rows, None if count == 1 else of_work / of_rows)
        for place, of_rows, of_work, count in zip(
            places[first][order].tolist(),
            rows[order].tolist(),
            work[order].tolist(),
            documents[order].tolist(),
            strict=True,
        )
    ]
