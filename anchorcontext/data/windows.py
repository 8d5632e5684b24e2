"""Reading packed windows: memory-mapped, map-style, safe to hand to data loader workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anchorcontext.layout import WindowLayout
from data_prep.disk import allow_open_files
from data_prep.errors import DataError
from data_prep.pack.account import window_work
from data_prep.pack.index import SPLITS, PackIndex
from data_prep.pack.pieces import ANCHOR_ROWS, ENDS_DOCUMENT, STARTS_DOCUMENT

_WORK_BLOCK = 65_536
"""Windows whose pieces are in memory at a time where statistics of all are computed."""


@dataclass(frozen=True)
class Window:
    """One training window of N rows.

    Attributes:
        input_ids: int64 [N]; rows that no piece fills hold the anchor id.
        piece_lengths: rows of each piece: anchor, tokens, end-of-document row.
        document_ids: the document of each piece, by its number over all sources; a document that the
            mixture repeats has another number each time.
        starts: whether each piece begins its document.
        ends: whether each piece ends its document.
        prefix_lengths: rows before each piece's tokens: anchor, and tag; 0 for an interleaved chunk
            whose document began earlier in the window.
        piece_sources: the source of each piece, an index into `PackedWindows.source_names`.
        loss_mask: bool [N], true where the row's token is to be learned; None: all of them.
    """

    input_ids: Tensor
    piece_lengths: list[int]
    document_ids: list[int]
    starts: list[bool]
    ends: list[bool]
    prefix_lengths: list[int]
    piece_sources: list[int]
    loss_mask: Tensor | None = None

    def layout(self, arm: str) -> WindowLayout:
        """Positions, segments and labels of the window's N rows under an attention arm."""
        return WindowLayout(
            self.piece_lengths,
            arm=arm,
            document_ids=self.document_ids,
            starts=self.starts,
            prefix_lengths=self.prefix_lengths,
            num_rows=len(self.input_ids),
        )


class PackedWindows:
    """The windows of one split of a pack index, by number.

    Args:
        index_folder: what `anchorcontext pack` wrote as data.index.
        split: `train` or `held_out`.

    Raises:
        DataError: data that is not packed, or was changed since; a split without windows.
    """

    def __init__(self, index_folder: str | Path, split: str = "train") -> None:
        if split not in SPLITS:
            raise DataError(f"split={split!r} is not one of {', '.join(SPLITS)}")
        self._index = PackIndex(Path(index_folder).expanduser())
        self._stores = self._index.open_stores()
        self._has_masks = any(store.has_masks for store in self._stores)
        # Tokens and masks now: mapped later, they could be those of a pack that has replaced the index since.
        shards = [(source, shard) for source, store in enumerate(self._stores) for shard in range(store.num_shards)]
        allow_open_files(2 * len(shards))
        self._tokens = {(source, shard): self._stores[source].tokens(shard) for source, shard in shards}
        self._masks = {(source, shard): self._stores[source].mask(shard) for source, shard in shards}
        self._pieces = self._index.pieces(split)
        self._window_ends = self._index.window_ends(split)
        again = PackIndex(self._index.folder)
        again.open_stores()
        _check_same_index(again, self._index.hash)
        self.split = split
        self.manifest: dict[str, Any] = self._index.manifest
        self.window_tokens = self._index.window_tokens
        self.index_hash = self._index.hash
        self.source_names = [store.source for store in self._stores]
        tokenizer = self._stores[0].tokenizer
        self.tokenizer_hash: str = tokenizer["hash"]
        self.tokenizer_path: str = tokenizer["path"]
        self.anchor_id: int = tokenizer["anchor_id"]
        self.eos_id: int = tokenizer["eos_id"]
        self.vocab_size: int = tokenizer["vocab_size"]
        if not len(self):
            raise DataError(
                f"the split {split} of {index_folder} has no windows: data.held_out_fraction="
                f"{self.manifest['options']['held_out_fraction']} chose none of its documents. Pack with another"
            )

    def __len__(self) -> int:
        return len(self._window_ends)

    def __getitem__(self, index: int) -> Window:
        """Window `index`, 0 .. len-1.

        Raises:
            IndexError: no such window.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        first = int(self._window_ends[index - 1]) if index else 0
        pieces = np.asarray(self._pieces[first : int(self._window_ends[index])])
        lengths, prefixes = self._index.piece_rows(pieces).tolist(), self._index.prefix_rows(pieces).tolist()
        return Window(
            input_ids=torch.from_numpy(self._gather_ids(pieces, lengths, prefixes)),
            piece_lengths=lengths,
            document_ids=pieces["document"].tolist(),
            starts=((pieces["flags"] & STARTS_DOCUMENT) > 0).tolist(),
            ends=((pieces["flags"] & ENDS_DOCUMENT) > 0).tolist(),
            prefix_lengths=prefixes,
            piece_sources=pieces["source"].tolist(),
            loss_mask=self._gather_mask(pieces, lengths, prefixes),
        )

    def attention_work(self, numbers: np.ndarray | None = None) -> np.ndarray:
        """Attention work (`window_work`) of these windows, or of all in their order; int64 [windows]."""
        if numbers is None:
            blocks = np.split(np.arange(len(self)), range(_WORK_BLOCK, len(self), _WORK_BLOCK))
            return np.concatenate([self.attention_work(block) for block in blocks])
        pieces, windows = self._pieces_of(numbers)
        return window_work(pieces, self._index.piece_rows(pieces), windows)

    def used_rows(self) -> np.ndarray:
        """Rows of each window that are not padding, int64 [windows]."""
        used = np.empty(len(self), dtype=np.int64)
        for first in range(0, len(self), _WORK_BLOCK):
            numbers = np.arange(first, min(first + _WORK_BLOCK, len(self)))
            pieces, windows = self._pieces_of(numbers)
            used[numbers] = np.bincount(windows, weights=self._index.piece_rows(pieces), minlength=len(numbers))
        return used

    def _pieces_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pieces of these windows, and for each its window, counted in `numbers`."""
        ends = np.asarray(self._window_ends[numbers], dtype=np.int64)
        begins = np.where(numbers > 0, np.asarray(self._window_ends[numbers - 1], dtype=np.int64), 0)
        of_each = [np.asarray(self._pieces[begin:end]) for begin, end in zip(begins, ends, strict=True)]
        return np.concatenate([self._pieces[:0], *of_each]), np.repeat(np.arange(len(numbers)), ends - begins)

    def origin(self, document: int) -> tuple[str, int]:
        """The input file of a document, by its number over all sources, and its line there (0: the whole file)."""
        if document < 0:
            raise IndexError(f"document {document} is less than 0")
        document %= self._index.num_documents  # a repetition by a mixture lies where the original does
        for store in self._stores:
            if document < store.num_documents:
                return store.origin(document)
            document -= store.num_documents
        raise AssertionError("the manifest counts the stores' documents")

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker process opens the files itself: pickled, a memory map would be copied whole."""
        return _reopen, (self._index.folder, self.split, self.index_hash)

    def _gather_ids(self, pieces: np.ndarray, lengths: list[int], prefixes: list[int]) -> np.ndarray:
        """The ids of the window's rows, int64 [N]."""
        ids = np.full(self.window_tokens, self.anchor_id, dtype=np.int64)
        ends_with_eos = ((pieces["flags"] & ENDS_DOCUMENT) > 0) & (self._index.end_of_document == "eos")
        columns = [pieces[name].tolist() for name in ("source", "shard", "start", "length")]
        row = 0
        for source, shard, start, length, rows, prefix, ends in zip(
            *columns, lengths, prefixes, ends_with_eos.tolist(), strict=True
        ):
            first = row + prefix
            if prefix > ANCHOR_ROWS:
                ids[row + ANCHOR_ROWS] = self._index.tag_ids[source]
            ids[first : first + length] = self._tokens[source, shard][start : start + length]
            row += rows
            if ends:
                ids[row - 1] = self.eos_id
        return ids

    def _gather_mask(self, pieces: np.ndarray, lengths: list[int], prefixes: list[int]) -> Tensor | None:
        """Whether each row's token is to be learned, bool [N]; None where no store has masks.

        A document's end is learned where its last token is.
        """
        if not self._has_masks:
            return None
        mask = np.zeros(self.window_tokens, dtype=bool)
        columns = [pieces[name].tolist() for name in ("source", "shard", "start", "length")]
        row = 0
        for source, shard, start, length, rows, prefix in zip(*columns, lengths, prefixes, strict=True):
            first, last = row + prefix, row + prefix + length - 1
            of_shard = self._masks[source, shard]
            mask[first : last + 1] = True if of_shard is None else of_shard[start : start + length]
            row += rows
            mask[last + 1 : row] = mask[last]
        return torch.from_numpy(mask)


def _reopen(folder: Path, split: str, index_hash: str) -> PackedWindows:
    """The windows in another process, where the index is still the one that was pickled."""
    windows = PackedWindows(folder, split)
    _check_same_index(windows._index, index_hash)
    return windows


def _check_same_index(index: PackIndex, index_hash: str) -> None:
    if index.hash != index_hash:
        raise DataError(f"{index.folder} was packed again while it was being read: start again")
