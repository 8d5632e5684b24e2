"""Megatron's .bin and .idx, as DeepSpeed's copy of its builder writes them, and as its layout says."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from data_prep.errors import DataError
from data_prep.read import Source, find_files, split_file
from tests.data_prep.read.reading import read, skipped, tokens

_CODES = {"u1": 1, "i4": 4, "i8": 5, "u2": 8}


def write_megatron(folder: Path, documents: Sequence[Sequence[Sequence[int]]], dtype: str = "i4") -> Path:
    """Documents of sequences of ids, by the published layout."""
    sequences = [np.array(sequence, f"<{dtype}") for document in documents for sequence in document]
    lengths = np.array([len(sequence) for sequence in sequences], "<i4")
    places = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])[:-1] * np.dtype(dtype).itemsize
    bounds = np.concatenate([[0], np.cumsum([len(document) for document in documents])])
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, _CODES[dtype], len(sequences), len(bounds))
    index = header + lengths.tobytes() + places.astype("<i8").tobytes() + bounds.astype("<i8").tobytes()
    (folder / "data.idx").write_bytes(index)
    (folder / "data.bin").write_bytes(b"".join(sequence.tobytes() for sequence in sequences))
    return folder


@pytest.mark.parametrize("dtype", ["u2", "i4"])
def test_files_of_the_builder(tmp_path: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    from deepspeed.runtime.data_pipeline.data_sampling.indexed_dataset import MMapIndexedDatasetBuilder

    documents = [[[5, 6, 7], [8]], [[9]], [[10, 11]]]
    builder = MMapIndexedDatasetBuilder(str(tmp_path / "data.bin"), dtype=np.uint16 if dtype == "u2" else np.int32)
    for document in documents:
        for sequence in document:
            builder.add_item(torch.tensor(sequence))
        builder.end_document()
    builder.finalize(str(tmp_path / "data.idx"))
    assert tokens(read(tmp_path)) == [[5, 6, 7, 8], [9], [10, 11]]
    ours = write_megatron(tmp_path, documents, dtype)
    assert tokens(read(ours)) == [[5, 6, 7, 8], [9], [10, 11]]


@pytest.mark.parametrize("dtype", _CODES)
def test_every_dtype_and_any_cuts(tmp_path: Path, dtype: str) -> None:
    chance = np.random.default_rng(0)
    documents = [[chance.integers(0, 100, size).tolist() for size in chance.integers(0, 6, 2)] for _ in range(50)]
    write_megatron(tmp_path, [*documents, [[]]], dtype)
    whole = read(tmp_path)
    expected = [first + second for first, second in documents]
    assert tokens(whole) == [ids for ids in expected if ids]
    empty = [number for number, ids in enumerate([*expected, []], start=1) if not ids]
    assert skipped(whole) == [(number, "empty document") for number in empty]
    for unit_bytes in (1, 17, 100):
        parts = read(tmp_path, unit_bytes)
        assert (tokens(parts), skipped(parts)) == (tokens(whole), skipped(whole))
    (file,) = find_files(Source("s", str(tmp_path)))
    assert len(split_file(file, 10)) > 5


def test_what_is_no_index_of_the_data(tmp_path: Path) -> None:
    write_megatron(tmp_path, [[[1, 2, 3]], [[4]]])
    index, data = (tmp_path / "data.idx").read_bytes(), (tmp_path / "data.bin").read_bytes()
    for damaged in (b"", index[:20], index[:-1], b"x" + index[1:], index[:17] + b"\x07" + index[18:], index[:34] * 2):
        (tmp_path / "data.idx").write_bytes(damaged)
        with pytest.raises(DataError, match=r"data\.idx is not the index of .*data\.bin"):
            read(tmp_path)
    (tmp_path / "data.idx").write_bytes(index)
    (tmp_path / "data.bin").write_bytes(data[:-4])
    with pytest.raises(DataError, match="4 ids of dtype code 4 are not 12 bytes"):
        read(tmp_path)
    (tmp_path / "data.idx").unlink()
    with pytest.raises(DataError, match=r"data\.bin has no data\.idx beside it"):
        read(tmp_path)
