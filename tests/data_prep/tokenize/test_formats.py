"""Sources of every format and of bad quality, from files to finished stores."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from data_prep.errors import DataError
from data_prep.read import Source, TokenDocument
from data_prep.store import TokenStore
from data_prep.tokenize import build_stores, load_tokenizer, pool, shards
from tests.data_prep.corpus import byte_tokenizer, folder_bytes, text_of, write_jsonl
from tests.data_prep.read.formats import written_by_mosaicml
from tests.data_prep.read.reading import read

_TEXTS = [f"document {number} caf\u00e9\n" for number in range(30)]


def _build(folder: Path, path: Path | str, num_workers: int = 1, **options: Any) -> TokenStore:
    tokenizer = load_tokenizer(str(byte_tokenizer(folder / "tokenizer")))
    source = Source("s", str(path), **options)
    return build_stores([source], tokenizer, folder / "store", num_workers=num_workers)[0].store


def _texts(store: TokenStore) -> list[str]:
    found = []
    for shard in range(store.num_shards):
        ids = store.tokens(shard)
        bounds = [0, *store.ends(shard).tolist()]
        found += [text_of(ids[begin:end].tolist()) for begin, end in itertools.pairwise(bounds)]
    return found


def _json(path: Path) -> None:
    (path / "a.json").write_text(json.dumps([{"text": text} for text in _TEXTS]))


def _csv(path: Path) -> None:
    (path / "a.csv").write_text("text\n" + "".join(f'"{text}"\n' for text in _TEXTS))


def _zstd(path: Path) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in _TEXTS)
    (path / "a.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))


def _parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": _TEXTS}), path / "a.parquet", row_group_size=7)


@pytest.mark.parametrize("write", [_json, _csv, _zstd, _parquet])
def test_the_same_documents_from_every_format(tmp_path: Path, write: Callable[[Path], None]) -> None:
    (tmp_path / "files").mkdir()
    write(tmp_path / "files")
    store = _build(tmp_path, tmp_path / "files")
    assert _texts(store) == _TEXTS
    assert store.text_hashes(0).tolist() == _build(tmp_path / "again", tmp_path / "files").text_hashes(0).tolist()


def test_files_with_differing_columns_make_one_source(tmp_path: Path) -> None:
    """D5: only the text is read, whatever else files hold, and of whatever type."""
    write_jsonl(tmp_path / "f" / "a.jsonl", [{"text": "a", "meta": 1}, {"text": "b", "meta": {"x": [1]}}])
    pq.write_table(pa.table({"meta": ["text"], "text": ["c"]}), tmp_path / "f" / "b.parquet")
    pq.write_table(pa.table({"text": ["d"], "other": [[1, 2]]}), tmp_path / "f" / "c.parquet")
    (tmp_path / "f" / "d.csv").write_text("id,text\n1,e\n")
    assert _texts(_build(tmp_path, tmp_path / "f")) == ["a", "b", "c", "d", "e"]


def test_prolong_becomes_tokens_and_masks(tmp_path: Path) -> None:
    options = {"token_field": "input_ids", "boundary_field": "indices", "mask_field": "mask"}
    shards = Path(str(written_by_mosaicml.__file__)).parent / "plain"
    (tmp_path / "f").mkdir()
    for shard in shards.glob("*.0000[0-2].mds"):  # ids below 256
        (tmp_path / "f" / shard.name).write_bytes(shard.read_bytes())
    store = _build(tmp_path, tmp_path / "f", **options)
    documents = [record for record in read(tmp_path / "f", **options) if isinstance(record, TokenDocument)]
    # Ids 0 and 1 are this tokenizer's BOS and EOS, which a store leaves out at either end.
    expected = [document.ids[document.ids > 1] for document in documents]
    masks = [document.mask[document.ids > 1] for document in documents if document.mask is not None]
    kept = [index for index, ids in enumerate(expected) if len(ids)]
    assert store.tokens(0).tolist() == np.concatenate([expected[index] for index in kept]).tolist()
    mask = store.mask(0)
    assert mask is not None
    assert mask.tolist() == np.concatenate([masks[index] for index in kept]).tolist()
    assert store.num_documents == len(kept)


def test_groups_make_one_document_each(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": str(number), "repo": number % 3} for number in range(9)])
    store = _build(tmp_path, tmp_path / "a.jsonl", group_by=("repo",), group_separator="|")
    assert _texts(store) == ["0|3|6", "1|4|7", "2|5|8"]
    with pytest.raises(DataError, match=r"group_by: made with \['repo'\], now None"):
        _build(tmp_path, tmp_path / "a.jsonl")


def test_a_sample_says_so_and_is_another_store(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in _TEXTS * 100])
    store = _build(tmp_path, tmp_path / "a.jsonl", limit="10%")
    assert 240 < store.num_documents < 360
    assert store.manifest["sample"]["fraction"] == pytest.approx(0.1)
    with pytest.raises(DataError, match=r"limit: made with '10%', now None"):
        _build(tmp_path, tmp_path / "a.jsonl")
    whole = _build(tmp_path / "whole", tmp_path / "a.jsonl")
    assert "sample" not in whole.manifest
    assert set(store.text_hashes(0).tolist()) <= set(whole.text_hashes(0).tolist())


def test_a_sample_that_takes_nothing(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}])
    with pytest.raises(DataError, match=r"limit=0\.001% takes none of its documents: raise it"):
        _build(tmp_path, tmp_path / "a.jsonl", limit="0.001%")


def test_strict_stops_at_the_first_bad_record(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}, {"text": ""}, {"text": 5}, b"{"])
    assert _build(tmp_path / "loose", tmp_path / "a.jsonl").num_documents == 1
    with pytest.raises(DataError, match=r"a\.jsonl:3: text is not a string \(a int\)\. Fix it, or set strict=false"):
        _build(tmp_path, tmp_path / "a.jsonl", strict=True)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_too_much_bad_ends_the_run_before_all_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int
) -> None:
    for number in range(6):
        bad = [b"{bad"] * (150 if number < 3 else 0)
        write_jsonl(tmp_path / "f" / f"{number}.jsonl", [*bad, *[{"text": "x" * 50}] * 90])
    monkeypatch.setattr(shards, "_MIN_UNIT_BYTES", 1000)
    written: list[int] = []
    write_shard = pool.write_shard
    monkeypatch.setattr(pool, "write_shard", lambda *given: [written.append(given[2].number), write_shard(*given)][1])
    with pytest.raises(
        DataError, match=r"source s: \d+ of \d+ records are bad \(\d+ bad JSON\).*max_bad_fraction=0\.05"
    ):
        _build(tmp_path, tmp_path / "f", num_workers)
    assert len(written) == (3 if num_workers == 1 else 0)  # of some 40
    store = _build(tmp_path, tmp_path / "f", num_workers, max_bad_fraction=0.8)
    assert store.manifest["counts"]["skipped"] == {"bad JSON": 450}


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_bad_file_among_many_good_ones_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_workers: int
) -> None:
    write_jsonl(tmp_path / "f" / "0.jsonl", [*[b"{bad"] * 150, {"text": "x"}])
    for number in range(1, 5):
        write_jsonl(tmp_path / "f" / f"{number}.jsonl", [{"text": f"{number} {line}"} for line in range(1000)])
    monkeypatch.setattr(shards, "_MIN_UNIT_BYTES", 1000)
    store = _build(tmp_path, tmp_path / "f", num_workers)
    assert store.num_documents == 4001
    assert store.manifest["counts"]["skipped"] == {"bad JSON": 150}


def test_a_hundred_bad_records_stop_nothing(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", [{"text": "x"}, *[b"{bad"] * 100])
    assert _build(tmp_path, tmp_path / "a.jsonl").num_documents == 1


def test_limits_on_quality_do_not_make_another_store(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"text": text} for text in _TEXTS])
    before = folder_bytes(_build(tmp_path, path).folder)
    after = _build(tmp_path, path, strict=True, max_bad_fraction=0, storage_options={"anon": True})
    assert folder_bytes(after.folder) == before


def test_every_file_is_read_once(tmp_path: Path) -> None:
    """D16: in each format, cut or not, whatever the number of workers."""
    (tmp_path / "f").mkdir()
    for write in (_json, _csv, _zstd, _parquet):
        write(tmp_path / "f")
    write_jsonl(tmp_path / "f" / "sub" / "b.jsonl", [{"text": text} for text in _TEXTS])
    one, two = (_build(tmp_path / str(count), tmp_path / "f", count) for count in (1, 2))
    assert _texts(one) == _TEXTS * 5 == _texts(two)


def test_remote_files(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "f" / "a.jsonl.gz", [{"text": text} for text in _TEXTS])
    _parquet(tmp_path / "f")
    store = _build(tmp_path, f"file://{tmp_path}/f", num_workers=2)
    assert _texts(store) == _TEXTS * 2
    assert [store.origin(number) for number in (0, 30)] == [("a.jsonl.gz", 1), ("a.parquet", 1)]
