"""What one training window looks like: which rows form which piece, document and segment.

A `WindowLayout` is a pure description made from piece lengths. It yields the three things every
other part needs and that must never be guessed from one another: rotary positions, attention
segments, and labels. Attention of every arm is one rule over it: row i sees row j iff both are in
the same segment and j <= i.

The anchor arm rests on an identity. An anchor row sees only itself, so its hidden state depends on
the weights alone, and one anchor shared by all documents equals a copy at the head of each piece
with rotary position 0 (AnchorAttention, arXiv 2411.13476; the shared form is kept as a test
oracle). Where a document has several pieces in one window (interleaving), its first piece's copy is
the one its rows see, and each later copy is a segment of its own, so no row sees an anchor twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

ARMS = ("full", "document", "document_reset", "anchor")
"""The compared attention recipes: causal over the window; document mask with window positions;
document mask with positions restarting per document; AnchorAttention."""

IGNORED_LABEL = -100
PADDING_SEGMENT = -1

_DENSE_MASK_MAX_ROWS = 32_768


class WindowLayout:
    """Rows of one window, from the lengths of its pieces.

    Args:
        piece_lengths: rows of each piece, in window order. Every row counts: prefix (anchor, and
            domain tag), tokens, end-of-document token.
        arm: one of `ARMS`; decides segments and positions, never rows or labels.
        document_ids: the document each piece belongs to (default: one document each). Pieces that
            share an id are one document, cut into chunks that may lie apart.
        starts: False where a piece continues a document whose earlier tokens lie outside this
            window (default: all True). A later piece of a document that is already in the window
            always continues it.
        prefix_lengths: rows before each piece's tokens, one number or one per piece: 1 for the
            anchor, 2 for anchor and tag, 0 for a chunk without its own anchor copy.
        num_rows: rows of the window; what the pieces leave is padding. Default: no padding.

    Raises:
        ValueError: lengths, ids or prefixes that contradict each other, named with the piece.
    """

    def __init__(
        self,
        piece_lengths: Sequence[int] | Tensor | np.ndarray,
        *,
        arm: str = "anchor",
        document_ids: Sequence[int] | Tensor | np.ndarray | None = None,
        starts: Sequence[bool] | Tensor | np.ndarray | None = None,
        prefix_lengths: int | Sequence[int] | Tensor | np.ndarray = 1,
        num_rows: int | None = None,
    ) -> None:
        if arm not in ARMS:
            raise ValueError(f"arm={arm!r} is not one of {', '.join(ARMS)}")
        lengths = _int_vector(piece_lengths, "piece_lengths")
        count = len(lengths)
        ids = np.arange(count) if document_ids is None else _int_vector(document_ids, "document_ids", count)
        if isinstance(prefix_lengths, int | np.integer):
            prefixes = np.full(count, int(prefix_lengths), dtype=np.int64)
        else:
            prefixes = _int_vector(prefix_lengths, "prefix_lengths", count)
        _check_lengths(lengths, prefixes)

        used_rows = int(lengths.sum())
        total_rows = used_rows if num_rows is None else int(num_rows)
        if total_rows < used_rows:
            raise ValueError(f"num_rows={total_rows} is less than the {used_rows} rows of the pieces")

        documents, first_pieces = _number_in_order(ids)
        given_starts = None if starts is None else _bool_vector(starts, "starts", count)
        self.arm = arm
        self.num_rows = total_rows
        self.piece_lengths = lengths
        self.prefix_lengths = prefixes
        self.document_ids = documents
        self.starts = _resolve_starts(given_starts, first_pieces)
        self.piece_offsets = np.concatenate(([0], np.cumsum(lengths)))[:-1].astype(np.int64)
        self.window_offsets = np.array([0, total_rows], dtype=np.int64)
        self._first_pieces = first_pieces
        if arm == "anchor":
            self._check_anchors()

    @classmethod
    def concatenate(cls, layouts: Sequence[WindowLayout]) -> WindowLayout:
        """Several windows concatenated into one row of `sum(num_rows)` rows.

        Each window keeps its own positions; no row sees, and no label crosses into, another window,
        even where the same document continues there.

        Raises:
            ValueError: no layouts, or layouts of different arms.
        """
        layouts = list(layouts)
        if not layouts:
            raise ValueError("concatenate needs at least one layout")
        if len(arms := {layout.arm for layout in layouts}) > 1:
            raise ValueError(f"layouts of different arms cannot share a row: {', '.join(sorted(arms))}")
        row_offsets = np.cumsum([0] + [layout.num_rows for layout in layouts])
        document_offsets = np.cumsum([0] + [layout.num_documents for layout in layouts])
        joined = cls.__new__(cls)
        joined.arm = layouts[0].arm
        joined.num_rows = int(row_offsets[-1])
        joined.piece_lengths = np.concatenate([layout.piece_lengths for layout in layouts])
        joined.prefix_lengths = np.concatenate([layout.prefix_lengths for layout in layouts])
        joined.document_ids = np.concatenate(
            [layout.document_ids + offset for layout, offset in zip(layouts, document_offsets[:-1], strict=True)]
        )
        joined.starts = np.concatenate([layout.starts for layout in layouts])
        joined.piece_offsets = np.concatenate(
            [layout.piece_offsets + offset for layout, offset in zip(layouts, row_offsets[:-1], strict=True)]
        )
        joined.window_offsets = np.concatenate(
            [layout.window_offsets[:-1] + offset for layout, offset in zip(layouts, row_offsets[:-1], strict=True)]
            + [row_offsets[-1:]]
        ).astype(np.int64)
        joined._first_pieces = np.concatenate([layout._first_pieces for layout in layouts])
        return joined

    @property
    def num_pieces(self) -> int:
        return len(self.piece_lengths)

    @property
    def num_documents(self) -> int:
        """Distinct documents; a document that two windows share counts once in each."""
        return int(self.document_ids.max()) + 1 if self.num_pieces else 0

    @cached_property
    def position_ids(self) -> Tensor:
        """Rotary position of each row, int64 [num_rows]; 0 for padding."""
        return torch.from_numpy(self._positions())

    @cached_property
    def segment_ids(self) -> Tensor:
        """Attention segment of each row, int64 [num_rows]; -1 for padding, which sees nothing.

        Rows of a segment need not be neighbours. Numbers are dense: 0 .. max.
        """
        rows, segments = self.segment_runs
        return torch.from_numpy(np.repeat(segments, np.diff(rows, append=self.num_rows)))

    @cached_property
    def segment_runs(self) -> tuple[np.ndarray, np.ndarray]:
        """`segment_ids` by runs of neighbouring rows: each run's first row, and its segment. int64.

        Without a loop or an array over rows: what plans are made from.
        """
        piece_segments = self._piece_segments()
        rows, segments = [self.piece_offsets], [piece_segments]
        if self.arm == "anchor":
            copies = ~self._first_pieces & (self.prefix_lengths > 0)
            segments[0] = piece_segments.copy()
            segments[0][copies] = self.num_documents + np.arange(copies.sum())
            followed = copies & (self.piece_lengths > 1)
            rows.append(self.piece_offsets[followed] + 1)
            segments.append(piece_segments[followed])
        padding = self._padding_rows()
        rows.append(padding)
        segments.append(np.full(len(padding), PADDING_SEGMENT, dtype=np.int64))
        all_rows, all_segments = np.concatenate(rows), np.concatenate(segments)
        order = np.argsort(all_rows, kind="stable")
        all_rows, all_segments = all_rows[order], all_segments[order]
        begins = np.diff(all_segments, prepend=np.int64(-2)) != 0
        return all_rows[begins], all_segments[begins]

    def dense_mask(self) -> Tensor:
        """The oracle: bool [num_rows, num_rows], True where row i (first axis) sees row j.

        Raises:
            ValueError: more than 32,768 rows (1 GiB); compute on segments instead.
        """
        if self.num_rows > _DENSE_MASK_MAX_ROWS:
            raise ValueError(
                f"a dense mask of {self.num_rows} rows needs {self.num_rows**2 / 2**30:.1f} GiB; "
                f"it is an oracle for at most {_DENSE_MASK_MAX_ROWS} rows. Use segment_ids"
            )
        segments = self.segment_ids
        same = segments[:, None] == segments[None, :]
        rows = torch.arange(self.num_rows)
        return same & (rows[None, :] <= rows[:, None]) & (segments >= 0)[:, None]

    @cached_property
    def target_rows(self) -> Tensor:
        """The row whose token each row predicts, int64 [num_rows]; -1 where it predicts nothing."""
        return torch.from_numpy(self._targets())

    def shift_labels(self, input_ids: Tensor, loss_mask: Tensor | None = None) -> Tensor:
        """Labels that are already shifted: row i holds the token that row i predicts, else -100.

        A row's target is the next token of the same document in the same window. Prefix rows
        predict the first token where their piece starts its document. Nothing predicts an anchor,
        a tag or padding. The same for every arm.

        Args:
            input_ids: [..., num_rows].
            loss_mask: [..., num_rows], true where the *token in that row* is to be learned.

        Returns:
            Labels, of the shape and dtype of `input_ids`.

        Raises:
            ValueError: a last dimension other than `num_rows`.
        """
        for name, tensor in (("input_ids", input_ids), ("loss_mask", loss_mask)):
            if tensor is not None and tensor.shape[-1] != self.num_rows:
                raise ValueError(f"{name} has {tensor.shape[-1]} rows, the layout has {self.num_rows}")
        targets = self.target_rows.to(input_ids.device)
        valid = targets >= 0
        targets = targets.clamp(min=0)
        if loss_mask is not None:
            valid = valid & loss_mask.to(input_ids.device)[..., targets].bool()
        return input_ids[..., targets].masked_fill(~valid, IGNORED_LABEL)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that masks, positions and labels depend on."""
        digest = hashlib.sha256(f"{self.arm}:{self.num_rows}".encode())
        for array in (
            self.piece_lengths,
            self.prefix_lengths,
            self.document_ids,
            self.starts.astype(np.int64),
            self.piece_offsets,
            self.window_offsets,
        ):
            digest.update(len(array).to_bytes(8, "little"))
            digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return (
            f"WindowLayout(arm={self.arm!r}, num_rows={self.num_rows}, pieces={self.num_pieces}, "
            f"documents={self.num_documents}, windows={len(self.window_offsets) - 1})"
        )

    def _piece_rows(self) -> np.ndarray:
        """The window row of every piece row, pieces concatenated: [sum(piece_lengths)]."""
        within = np.arange(self.piece_lengths.sum()) - np.repeat(
            np.cumsum(self.piece_lengths) - self.piece_lengths, self.piece_lengths
        )
        return np.repeat(self.piece_offsets, self.piece_lengths) + within

    def _positions(self) -> np.ndarray:
        positions = np.zeros(self.num_rows, dtype=np.int64)
        rows = self._piece_rows()
        if self.arm == "document_reset":
            earlier = np.zeros(self.num_pieces, dtype=np.int64)  # rows of the document before the piece
            seen: dict[int, int] = {}
            for piece, document in enumerate(self.document_ids.tolist()):
                earlier[piece] = seen.get(document, 0)
                seen[document] = int(earlier[piece] + self.piece_lengths[piece])
            positions[rows] = rows + np.repeat(earlier - self.piece_offsets, self.piece_lengths)
            return positions
        window = np.searchsorted(self.window_offsets, self.piece_offsets, side="right") - 1
        positions[rows] = rows - np.repeat(self.window_offsets[window], self.piece_lengths)
        if self.arm == "anchor":
            positions[self.piece_offsets[self.prefix_lengths > 0]] = 0
        return positions

    def _piece_segments(self) -> np.ndarray:
        """The segment of each piece's rows, but for later anchor copies under arm `anchor`."""
        if self.arm != "full":
            return self.document_ids
        window = np.searchsorted(self.window_offsets, self.piece_offsets, side="right") - 1
        return _number_in_order(window)[0]

    def _padding_rows(self) -> np.ndarray:
        """The first row of padding in each window that has some."""
        piece_ends = np.append(self.piece_offsets + self.piece_lengths, 0)
        last_piece = np.searchsorted(self.piece_offsets, self.window_offsets[1:]) - 1  # -1, the 0 appended: none
        used = np.maximum(piece_ends[last_piece], self.window_offsets[:-1])
        return used[used < self.window_offsets[1:]]

    def _targets(self) -> np.ndarray:
        targets = np.full(self.num_rows, -1, dtype=np.int64)
        last_token_row: dict[int, int] = {}
        pieces = zip(
            self.piece_offsets.tolist(),
            self.piece_lengths.tolist(),
            self.prefix_lengths.tolist(),
            self.document_ids.tolist(),
            self.starts.tolist(),
            strict=True,
        )
        for offset, length, prefix, document, starts in pieces:
            first, end = offset + prefix, offset + length
            if first == end:
                continue  # a piece of prefix rows alone has nothing to predict
            if starts:
                targets[offset:first] = first
            targets[first : end - 1] = np.arange(first + 1, end)
            if document in last_token_row:
                targets[last_token_row[document]] = first
            last_token_row[document] = end - 1
        return targets

    def _check_anchors(self) -> None:
        missing = np.flatnonzero(self._first_pieces & (self.prefix_lengths == 0))
        if len(missing):
            raise ValueError(
                f"piece {missing[0]} is the first of its document and has prefix length 0: under "
                "arm='anchor' it must begin with the anchor row (prefix_lengths >= 1)"
            )


def _int_vector(values: Sequence[int] | Tensor | np.ndarray, name: str, length: int | None = None) -> np.ndarray:
    array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if array.size == 0:
        array = array.astype(np.int64).reshape(0)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be a flat list of integers, got shape {array.shape} of {array.dtype}")
    if length is not None and len(array) != length:
        raise ValueError(f"{name} has {len(array)} entries for {length} pieces")
    return array.astype(np.int64)


def _bool_vector(values: Sequence[bool] | Tensor | np.ndarray, name: str, length: int) -> np.ndarray:
    array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if array.shape != (length,):
        raise ValueError(f"{name} has shape {array.shape} for {length} pieces")
    return array.astype(bool)


def _check_lengths(lengths: np.ndarray, prefixes: np.ndarray) -> None:
    for piece in np.flatnonzero((lengths < 1) | (prefixes < 0) | (prefixes > lengths)).tolist():
        raise ValueError(
            f"piece {piece} has {lengths[piece]} rows and a prefix of {prefixes[piece]}: "
            "a piece has at least one row, and its prefix is part of its length"
        )


def _number_in_order(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each value's number by first appearance, and whether it appears there for the first time."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    is_first = np.zeros(len(values), dtype=bool)
    is_first[first] = True
    return rank[inverse].astype(np.int64).reshape(-1), is_first


def _resolve_starts(given: np.ndarray | None, first_pieces: np.ndarray) -> np.ndarray:
    if given is None:
        return first_pieces.copy()
    contradictory = np.flatnonzero(given & ~first_pieces)
    if len(contradictory):
        raise ValueError(
            f"starts[{contradictory[0]}] is True, but an earlier piece of the same document is in the window"
        )
    return given
