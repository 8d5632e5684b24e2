"""Pieces -> bins of one size, none cut: best-fit decreasing, and first-fit.

Best-fit decreasing takes pieces from the longest to the shortest, equal ones in the given order; each
goes into the bin with the least room that still holds it, and among bins with equal room into the one
that has had it longest. Pieces of one length are placed together, a run of them per bin or a run of
bins at once, so the cost is that of the distinct (length, room) pairs and not of the pieces.
"""

from __future__ import annotations

from collections import deque

import numpy as np

_FAN_OUT_BITS = 6
_FAN_OUT = 1 << _FAN_OUT_BITS


def best_fit_decreasing(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The bin of each item, int64 [items]; bins are numbered in the order of their opening.

    Args:
        lengths: rows of each item, 1 .. capacity.
        capacity: rows of a bin.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    assert lengths.size == 0 or (lengths.min() >= 1 and lengths.max() <= capacity), "items must fit a bin"
    order = np.argsort(-lengths, kind="stable")
    distinct, counts = np.unique(lengths, return_counts=True)
    bins = _Bins(capacity)
    placed: list[int] = []
    for length, count in zip(distinct[::-1].tolist(), counts[::-1].tolist(), strict=True):
        bins.place(length, count, placed)
    result = np.empty(len(lengths), dtype=np.int64)
    result[order] = placed
    return result


class _Bins:
    """Open bins by the room they have left."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._by_room: dict[int, deque[int]] = {}
        self._rooms = _RoomTree(capacity)
        self._num_bins = 0

    def place(self, length: int, count: int, placed: list[int]) -> None:
        """Place `count` items of one length; appends the bin of each to `placed`."""
        while count:
            room = self._rooms.first_from(length)
            if room is None:
                self._open(length, count, placed)
                return
            waiting = self._by_room[room]
            if room < 2 * length:  # one item per bin: a run of bins at once
                run = min(count, len(waiting))
                taken = [waiting.popleft() for _ in range(run)]
                placed += taken
                self._add(room - length, taken)
                count -= run
            else:  # the bin stays the tightest that fits: a run of items at once
                run = min(count, room // length)
                taken = [waiting.popleft()]
                placed += taken * run
                self._add(room - run * length, taken)
                count -= run
            if not waiting:
                self._rooms.remove(room)

    def _open(self, length: int, count: int, placed: list[int]) -> None:
        per_bin = self._capacity // length
        full, rest = divmod(count, per_bin)
        first, self._num_bins = self._num_bins, self._num_bins + full + (rest > 0)
        opened = range(first, first + full)
        placed += [number for number in opened for _ in range(per_bin)]
        self._add(self._capacity - per_bin * length, opened)
        if rest:
            placed += [first + full] * rest
            self._add(self._capacity - rest * length, [first + full])

    def _add(self, room: int, numbers: list[int] | range) -> None:
        if not room or not numbers:
            return
        waiting = self._by_room.setdefault(room, deque())
        if not waiting:
            self._rooms.add(room)
        waiting.extend(numbers)


class _RoomTree:
    """A set of numbers 1 .. capacity that finds the least one from a bound: a segment tree, 64 wide.

    Bit i of word w of level 0 says whether 64 w + i is in the set; each higher level says which
    words below are not empty.
    """

    def __init__(self, capacity: int) -> None:
        self._levels: list[list[int]] = []
        size = capacity + 1
        while True:
            size = -(-size // _FAN_OUT)
            self._levels.append([0] * size)
            if size == 1:
                return

    def add(self, number: int) -> None:
        for words in self._levels:
            word, bit = number >> _FAN_OUT_BITS, number & (_FAN_OUT - 1)
            words[word] |= 1 << bit
            number = word

    def remove(self, number: int) -> None:
        for words in self._levels:
            word, bit = number >> _FAN_OUT_BITS, number & (_FAN_OUT - 1)
            words[word] &= ~(1 << bit)
            if words[word]:
                return
            number = word

    def first_from(self, bound: int) -> int | None:
        """The least number >= bound, or None."""
        for height, words in enumerate(self._levels):
            word, bit = bound >> _FAN_OUT_BITS, bound & (_FAN_OUT - 1)
            if word < len(words) and (found := words[word] >> bit):
                number = bound + _lowest_bit(found)
                for below in reversed(self._levels[:height]):
                    number = (number << _FAN_OUT_BITS) + _lowest_bit(below[number])
                return number
            bound = word + 1  # nothing in this word: look right of it, a level higher
        return None


def _lowest_bit(word: int) -> int:
    return (word & -word).bit_length() - 1


def first_fit(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The bin of each item, int64 [items]; bins are numbered in the order of their opening.

    Time grows with items x log(bins): a tree holds the most room of each half of its bins.

    Args:
        lengths: rows of each item, 1 .. capacity.
        capacity: rows of a bin.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    assert lengths.size == 0 or (lengths.min() >= 1 and lengths.max() <= capacity), "items must fit a bin"
    most_bins = min(len(lengths), 2 * -(-int(lengths.sum()) // capacity) + 1)  # two neighbours never fit into one
    leaves = 1 << max(most_bins - 1, 0).bit_length()
    room = [capacity] * (2 * leaves)  # node n has the children 2n and 2n + 1; the bins are the last `leaves` nodes
    bins = np.empty(len(lengths), dtype=np.int64)
    for item, length in enumerate(lengths.tolist()):
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < length:
                node += 1
        bins[item] = node - leaves
        room[node] -= length
        node //= 2
        while node:
            most = max(room[2 * node], room[2 * node + 1])
            if room[node] == most:
                break
            room[node] = most
            node //= 2
    return bins
