"""Large files cut into parts, so that one huge file keeps all cores at work."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from data_prep.errors import DataError
from data_prep.read.formats.columns import row_group_starts
from data_prep.read.formats.megatron import read_index
from data_prep.read.input_file import InputFile
from data_prep.read.source import Source
from data_prep.read.storage import is_remote, open_binary
from data_prep.read.unpack import compression_of

_SEARCH_BYTES = 1 << 16


def split_file(file: InputFile, unit_bytes: int, source: Source | None = None) -> list[InputFile]:
    """Cut a file into parts of about `unit_bytes`, each an `InputFile` with a span of bytes.

    The parts hold the file's records in order, each once, and depend on its content alone: a part
    begins where a line, a row group of Parquet or a document of Megatron does. What cannot be cut
    (compressed and remote files, other formats, a file whose records `source` groups) comes back as
    it is, and so does a small file.
    """
    starts_in = _STARTS.get(file.format)
    grouped = source is not None and bool(source.group_by)
    is_whole = file.span is not None or file.num_bytes <= unit_bytes or starts_in is None or grouped
    if is_whole or is_remote(file.path) or compression_of(file.path) is not None:
        return [file]
    assert starts_in is not None
    edges = [*(start for start in starts_in(file, unit_bytes) if start < file.num_bytes), file.num_bytes]
    return [replace(file, span=(begin, end), num_bytes=end - begin) for begin, end in itertools.pairwise(edges)]


def _line_starts(file: InputFile, unit_bytes: int) -> list[int]:
    """0, and where a line begins at or after each multiple of `unit_bytes`."""
    edges = [0]
    with open_binary(file.path, {}) as lines:
        while edges[-1] + unit_bytes < file.num_bytes:
            lines.seek(edges[-1] + unit_bytes - 1, os.SEEK_SET)  # a line may begin at the target itself
            while block := lines.read(_SEARCH_BYTES):
                if (at := block.find(b"\n")) >= 0:
                    break
            else:
                break
            edges.append(lines.tell() - len(block) + at + 1)
    return edges


def _group_starts(file: InputFile, unit_bytes: int) -> list[int]:
    """Where row groups begin, few enough that parts are no smaller than `unit_bytes` but the last."""
    import pyarrow.parquet

    try:
        starts = row_group_starts(pyarrow.parquet.ParquetFile(file.path))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file.path} is not sound parquet data ({error}). Copy it anew") from error
    return _spaced(starts, unit_bytes)


def _document_starts(file: InputFile, unit_bytes: int) -> list[int]:
    """Where documents of Megatron begin, as for row groups."""
    return _spaced(read_index(file.path, file.num_bytes).starts, unit_bytes)


def _spaced(starts: Sequence[int] | np.ndarray, unit_bytes: int) -> list[int]:
    """0, and each next of the growing `starts` that is `unit_bytes` behind the one before or more."""
    edges = [0]
    places = np.asarray(starts, dtype=np.int64)
    while (following := int(np.searchsorted(places, edges[-1] + unit_bytes))) < len(places):
        edges.append(int(places[following]))
    return edges


_STARTS: dict[str, Callable[[InputFile, int], list[int]]] = {
    "jsonl": _line_starts,
    "parquet": _group_starts,
    "megatron": _document_starts,
}
