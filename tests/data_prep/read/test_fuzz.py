"""Damaged files of every kind: an error that names the file, or records with everything lost counted."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import lzma
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from data_prep.errors import DataError
from data_prep.read import Document, Record, Skipped, Source, TokenDocument, find_files, open_records, split_file
from tests.data_prep.read.formats import written_by_mosaicml
from tests.data_prep.read.formats.test_megatron import write_megatron

_TEXTS = [f'document {number}: "quoted", caf\u00e9, \\ and\nlines ' + "x" * (number % 40) for number in range(40)]
_ROWS = [{"text": text, "ids": [number, 2, 3]} for number, text in enumerate(_TEXTS)]
_PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".xz": lzma.compress,
}
_NOISE = (
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\n",
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"NaN",
    b"1e999",
)


def _lines() -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in _ROWS)


def _csv() -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerows([["text", "ids"], *([row["text"], row["ids"]] for row in _ROWS)])
    return text.getvalue().encode()


_PLAIN: dict[str, Callable[[], bytes]] = {
    "a.jsonl": _lines,
    "a.json": lambda: json.dumps(_ROWS).encode(),
    "a.csv": _csv,
    "a.md": lambda: "\n".join(_TEXTS).encode(),
}


def _sound_file(folder: Path, name: str) -> Path:
    """An undamaged file of a kind."""
    path = folder / name
    table = pa.Table.from_pylist(_ROWS)
    if name == "a.parquet":
        pq.write_table(table, path, row_group_size=11)
    elif name.endswith(".arrow"):
        new = pa.ipc.new_file if name == "file.arrow" else pa.ipc.new_stream
        with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=11)
    elif name == "a.mds":
        shutil.copy(Path(str(written_by_mosaicml.__file__)).parent / "plain" / "shard.00001.mds", path)
    elif name in ("data.bin", "data.idx"):
        write_megatron(folder, [[row["ids"]] for row in _ROWS])
    else:
        plain = next(plain for plain in _PLAIN if name.startswith(plain))
        path.write_bytes(_PACK[name.removeprefix(plain)](_PLAIN[plain]()))
    return path


def _damaged(data: bytes, chance: random.Random) -> bytes:
    """Some bytes flipped, replaced, lost, doubled, put in; or the end cut off."""
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(damaged) + 1)
        match chance.randrange(6):
            case 0 if at < len(damaged):
                damaged[at] ^= 1 << chance.randrange(8)
            case 1:
                damaged[at : at + 1] = bytes([chance.randrange(256)])
            case 2:
                del damaged[at : at + chance.randrange(1, 50)]
            case 3:
                damaged[at:at] = damaged[at : at + chance.randrange(1, 50)]
            case 4:
                damaged[at:at] = chance.choice(_NOISE)
            case _:
                del damaged[at:]
    return bytes(damaged)


def _read(path: Path, token_field: str | None) -> list[Record] | None:
    """Records of a file cut as small as can be; None where an error names the file."""
    found: list[Record] = []
    failure = ""
    try:
        source = Source("s", str(path), token_field=token_field)
        (file,) = find_files(source)
        for part in split_file(file, 1, source):
            with open_records(part, source) as records:
                found += records
                records.finish()
    except DataError as error:
        failure = str(error)
    if failure:
        assert path.stem in failure
        return None
    assert all(isinstance(record, Document | TokenDocument | Skipped) for record in found)
    return found


def _try(folder: Path, name: str, times: int) -> None:
    path = _sound_file(folder, name)
    read_path = path.with_suffix(".bin") if name == "data.idx" else path
    sound = path.read_bytes()
    chance = random.Random(name)
    fields = [None, "input_ids" if name == "a.mds" else "ids"]
    if name in ("data.bin", "data.idx") or name.removeprefix("a.md") in _PACK:
        fields = [None]  # formats without fields
    for _ in range(times):
        data = _damaged(sound, chance)
        path.write_bytes(data)
        field = chance.choice(fields)
        records = _read(read_path, field)
        if name == "a.jsonl" and records is not None:
            lines = [line for line in data.removeprefix(codecs.BOM_UTF8).split(b"\n") if line.strip()]
            assert len(records) == len(lines), "a line was neither a document nor counted"
        if name in ("a.jsonl.gz", "a.jsonl.xz", "a.jsonl.zst") and records is not None and field is None:
            texts = [record.text for record in records if isinstance(record, Document)]
            assert texts == _TEXTS * (len(texts) // len(_TEXTS)), "an archive's checksum was not heeded"


_KINDS = [
    *(f"{plain}{packing}" for plain in _PLAIN for packing in _PACK),
    "a.parquet",
    "file.arrow",
    "stream.arrow",
    "a.mds",
    "data.bin",
    "data.idx",
]


@pytest.mark.parametrize("name", _KINDS)
def test_damage_is_named_or_counted(tmp_path: Path, name: str) -> None:
    _try(tmp_path, name, 20)


@pytest.mark.slow
@pytest.mark.parametrize("name", _KINDS)
def test_much_damage_is_named_or_counted(tmp_path: Path, name: str) -> None:
    _try(tmp_path, name, 2000)


@pytest.mark.parametrize("name", _KINDS)
def test_a_file_that_ends_early_is_named_or_shorter(tmp_path: Path, name: str) -> None:
    """An archive, and every format that knows its own length, tells when it is cut."""
    path = _sound_file(tmp_path, name)
    sound = path.read_bytes()
    for kept in range(0, len(sound) - 1, max(len(sound) // 15, 1)):
        path.write_bytes(sound[:kept])
        records = _read(path.with_suffix(".bin") if name == "data.idx" else path, None)
        if name not in _PLAIN and not (name == "data.idx" or kept == 0):
            assert records is None, f"{kept} of {len(sound)} bytes were taken for a whole file"
