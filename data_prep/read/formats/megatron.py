"""Megatron's indexed datasets: token ids in NAME.bin, their places in NAME.idx.

The index is, little-endian: a mark of 9 bytes; version (u8: 1); a code of the ids' dtype (u1); the
number of sequences and of document bounds (u8 each); each sequence's length in ids (i4) and place in
bytes (i8); the bounds, as numbers of sequences (i8). What follows (modes of sequences) is not needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.errors import DataError
from data_prep.read.documents import EMPTY, Skipped, TokenDocument
from data_prep.read.formats.columns import OnShare
from data_prep.read.source import InputFile, Source
from data_prep.read.storage import is_remote

_MARK = b"MMIDIDX\x00\x00"
_HEADER_BYTES = 34
# What a code means in Megatron and, where that differs, in DeepSpeed's copy of it: the data's size says
# which. 7 is a float in the one and uint32 in the other, so it is refused.
_DTYPES = {1: ("u1",), 2: ("i1",), 3: ("<i2",), 4: ("<i4",), 5: ("<i8",), 6: ("<u2",), 8: ("<u2", "<u8")}


@dataclass(frozen=True)
class Index:
    """Where the documents of a .bin are: `starts` and `lengths` in bytes and ids, int64 [documents]."""

    dtype: np.dtype
    starts: np.ndarray
    lengths: np.ndarray


def read_index(path: str, num_bytes: int) -> Index:
    """The index beside a .bin file of `num_bytes`.

    Raises:
        DataError: no index, a file that is not an index, or an index of other data.
    """
    index = Path(path).with_suffix(".idx")
    if is_remote(path):
        raise DataError(f"{path}: copy Megatron's .bin and .idx to a local folder, and read those")
    if not index.is_file():
        raise DataError(f"{path} has no {index.name} beside it, which says where its documents are")
    data = index.read_bytes()
    try:
        return _parse(data, num_bytes)
    except (ValueError, IndexError, KeyError) as error:
        raise DataError(f"{index} is not the index of {path} ({error}): copy both again") from error


def _parse(data: bytes, num_bytes: int) -> Index:
    if data[:9] != _MARK or int.from_bytes(data[9:17], "little") != 1:
        raise ValueError("not an index of version 1")
    num_sequences, num_bounds = np.frombuffer(data, "<u8", 2, 18).tolist()
    at = _HEADER_BYTES
    if len(data) < at + 12 * num_sequences + 8 * num_bounds:
        raise ValueError("it is cut short")
    lengths = np.frombuffer(data, "<i4", num_sequences, at).astype(np.int64)
    dtype = _dtype(data[17], int(lengths.sum()), num_bytes)
    places = np.frombuffer(data, "<i8", num_sequences, at + 4 * num_sequences)
    bounds = np.frombuffer(data, "<i8", num_bounds, at + 12 * num_sequences)
    ends = places + lengths * dtype.itemsize
    in_a_row = num_sequences == 0 or (places[0] == 0 and (places[1:] == ends[:-1]).all())
    if (lengths < 0).any() or not in_a_row:
        raise ValueError("its sequences are not those of the data")
    if num_bounds < 1 or bounds[0] != 0 or bounds[-1] != num_sequences or (np.diff(bounds) < 0).any():
        raise ValueError("its documents are not made of its sequences")
    totals = np.concatenate([[0], np.cumsum(lengths)])
    edges = totals[bounds]
    return Index(dtype, edges[:-1] * dtype.itemsize, np.diff(edges))


def _dtype(code: int, num_ids: int, num_bytes: int) -> np.dtype:
    for dtype in map(np.dtype, _DTYPES.get(code, ())):
        if dtype.itemsize * num_ids == num_bytes:
            return dtype
    raise ValueError(f"{num_ids} ids of dtype code {code} are not {num_bytes} bytes")


def read_megatron(path: str, file: InputFile, source: Source, on_share: OnShare) -> Iterator[TokenDocument | Skipped]:
    """Each document that begins in the file's span, numbered from 1; its sequences are joined."""
    size = Path(path).stat().st_size
    index = read_index(path, size)
    begin, end = file.span or (0, size)
    first, last = _documents(index, file.span, size)
    with open(path, "rb") as data:
        data.seek(begin)
        for number, length in enumerate(index.lengths[first:last].tolist(), start=1):
            if not length:
                yield Skipped(number, EMPTY)
                continue
            ids = np.fromfile(data, index.dtype, length)
            if len(ids) != length:
                raise DataError(f"{path} is cut short: copy it again")
            yield TokenDocument(ids.astype(np.int64), None, number)
            on_share((data.tell() - begin) / (end - begin))


def index_digest(path: str, span: tuple[int, int] | None) -> bytes:
    """SHA-256 of what the index says about the documents in a span."""
    size = Path(path).stat().st_size
    index = read_index(path, size)
    first, last = _documents(index, span, size)
    return hashlib.sha256(index.lengths[first:last].astype("<i8").tobytes()).digest()


def _documents(index: Index, span: tuple[int, int] | None, size: int) -> tuple[int, int]:
    """The numbers of the documents that begin in a span; empty ones at the file's end are in its last part."""
    if span is None:
        return 0, len(index.starts)
    first, last = np.searchsorted(index.starts, span).tolist()
    return first, len(index.starts) if span[1] == size else last
