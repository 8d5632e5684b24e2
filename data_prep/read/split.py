"""Large files cut into parts, so that one huge file keeps all cores at work."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace

from data_prep.read.files import InputFile

_SEARCH_BYTES = 1 << 16


def split_file(file: InputFile, unit_bytes: int) -> list[InputFile]:
    """Cut a file into parts of about `unit_bytes`, each an `InputFile` with a span of bytes.

    The parts hold the file's records in order, each once, and depend on its content alone: a part
    ends where a line does. What cannot be cut (compressed or remote files, other formats) comes back
    as it is, and so does a small file.
    """
    if file.span is not None or file.num_bytes <= unit_bytes or file.format != "jsonl" or not is_plain(file.path):
        return [file]
    edges = _line_starts(file.path, file.num_bytes, unit_bytes)
    return [replace(file, span=(begin, end), num_bytes=end - begin) for begin, end in itertools.pairwise(edges)]


def is_plain(path: str) -> bool:
    """Whether the file lies on this machine, uncompressed."""
    return "://" not in path and not path.lower().endswith((".gz", ".zst", ".zstd", ".xz"))


def _line_starts(path: str, num_bytes: int, unit_bytes: int) -> list[int]:
    """0, where a line begins at or after each multiple of `unit_bytes`, and the file's length."""
    edges = [0]
    with open(path, "rb", buffering=0) as file:
        while (target := edges[-1] + unit_bytes) < num_bytes:
            file.seek(target - 1, os.SEEK_SET)  # a line may begin at the target itself
            while block := file.read(_SEARCH_BYTES):
                at = block.find(b"\n")
                if at >= 0:
                    edges.append(min(file.tell() - len(block) + at + 1, num_bytes))
                    break
            else:
                break
    return edges if edges[-1] == num_bytes else [*edges, num_bytes]
