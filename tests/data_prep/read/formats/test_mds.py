"""MDS shards that mosaicml-streaming wrote, and damaged ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_prep.errors import DataError
from data_prep.read import Source, TokenDocument, find_files, open_stream
from data_prep.read.documents import Row
from data_prep.read.formats.mds import read_mds
from tests.data_prep.read.formats.written_by_mosaicml import write
from tests.data_prep.read.reading import read, skipped, texts, tokens

_WRITTEN = Path(write.__file__).parent
_PROLONG: dict[str, Any] = {"token_field": "input_ids", "boundary_field": "indices", "mask_field": "mask"}


def test_documents_and_masks_of_prolong(tmp_path: Path) -> None:
    records = read(_WRITTEN / "plain", **_PROLONG)
    samples = [write.sample(number) for number in range(4)]
    parts = [slice(*bounds) for sample in samples for bounds in sample["indices"].tolist()]
    owners = [sample for sample in samples for _ in sample["indices"]]
    assert tokens(records) == [sample["input_ids"][part].tolist() for sample, part in zip(owners, parts, strict=True)]
    masks = [
        record.mask.tolist() for record in records if isinstance(record, TokenDocument) and record.mask is not None
    ]
    assert masks == [sample["mask"][part].astype(bool).tolist() for sample, part in zip(owners, parts, strict=True)]


def test_every_encoding_comes_back() -> None:
    wanted = Source("s", "unused", token_field="input_ids", where=dict.fromkeys(write.COLUMNS, ""))
    found = []
    for file in find_files(Source("s", str(_WRITTEN / "plain"))):
        with open_stream(file) as stream:
            found += [row for row in read_mds(stream.file, file, wanted) if isinstance(row, Row)]
    for row, number in zip(found, range(4), strict=True):
        for name, value in write.sample(number).items():
            read_back = row.fields[name]
            if isinstance(value, np.ndarray):
                assert read_back.dtype == value.dtype
                assert (read_back == value).all()
            else:
                assert read_back == (value.encode() if isinstance(value, str) else value)


def test_a_compressed_shard_of_texts() -> None:
    assert texts(read(_WRITTEN / "packed")) == [f"sample {number} caf\u00e9" for number in range(3)]


def test_where_and_a_missing_field() -> None:
    records = read(_WRITTEN / "plain", **_PROLONG, where={"domain": "book"})
    assert len(tokens(records)) == 4
    records = read(_WRITTEN / "plain")
    assert {reason for _, reason in skipped(records)} == {"no text field"}
    assert "input_ids" in records[0].fields  # type: ignore[union-attr]


@pytest.mark.parametrize("damage", [lambda data: data[:3], lambda data: data[:200], lambda data: data[:-1],
                                    lambda data: data + b"x", lambda data: b"\xff" * 4 + data[4:],
                                    lambda data: data[:12] + b"\xff" * 40 + data[52:]])  # fmt: skip
def test_damaged_shards_are_named(tmp_path: Path, damage: Any) -> None:
    shutil.copy(_WRITTEN / "plain" / "shard.00001.mds", tmp_path / "a.mds")
    (tmp_path / "a.mds").write_bytes(damage((tmp_path / "a.mds").read_bytes()))
    with pytest.raises(DataError, match=r"a\.mds is not a sound MDS shard"):
        read(tmp_path, **_PROLONG)
