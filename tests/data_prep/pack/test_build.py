"""The pack index: conservation, splits, seeds, reuse and refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.errors import DataError
from data_prep.pack import SPLITS, BuiltIndex, PackIndex, PackOptions, build_index, piece_rows
from data_prep.pack.build import pack_split
from data_prep.pack.pieces import Documents
from data_prep.read import Source
from data_prep.store import TokenStore
from data_prep.tokenize import build_stores, load_tokenizer
from tests.data_prep.corpus import byte_tokenizer, folder_bytes, make_index, make_store, write_jsonl

_WINDOW = 64


def _texts(count: int, seed: int = 0) -> list[str]:
    chance = np.random.default_rng(seed)
    return [f"{number}:" + "x" * int(chance.integers(0, 3 * _WINDOW)) for number in range(count)]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[TokenStore]:
    folder = tmp_path_factory.mktemp("stores")
    return [make_store(folder, _texts(150), "first"), make_store(folder, _texts(90, seed=1), "second")]


def _pack(stores: list[TokenStore], folder: Path, *, overwrite: bool = False, **options: Any) -> BuiltIndex:
    given = {"window_tokens": _WINDOW, "held_out_fraction": 0.2, **options}
    return build_index(stores, PackOptions(**given), folder, overwrite=overwrite)


@pytest.mark.parametrize("ending", ["eos", "none"])
@pytest.mark.parametrize("window", [_WINDOW, 61])
def test_every_document_and_token_is_packed_once_over_both_splits(
    tmp_path: Path, stores: list[TokenStore], ending: str, window: int
) -> None:
    index = _pack(stores, tmp_path, end_of_document=ending, window_tokens=window).index
    tokens = [np.zeros(store.num_tokens, dtype=int) for store in stores]
    documents: dict[str, set[int]] = {}
    for split in SPLITS:
        pieces, ends = index.pieces(split), index.window_ends(split)
        documents[split] = set(pieces["document"].tolist())
        rows = piece_rows(pieces, ending)
        used = np.add.reduceat(rows, np.concatenate(([0], ends[:-1])).astype(np.int64))
        assert used.max() <= window
        counts = index.manifest["splits"][split]
        assert counts["windows"] == len(ends) == len(used)
        assert counts["rows"] == used.sum() == len(ends) * window - counts["padding_rows"]
        assert counts["density"] == pytest.approx(used.sum() / (len(ends) * window))
        for piece in pieces:  # the stores are of one shard each
            tokens[piece["source"]][piece["start"] : piece["start"] + piece["length"]] += 1
    assert all((count == 1).all() for count in tokens)
    assert not documents["train"] & documents["held_out"]
    assert documents["train"] | documents["held_out"] == set(range(240))


def test_the_account_adds_up(tmp_path: Path, stores: list[TokenStore]) -> None:
    manifest = _pack(stores, tmp_path).index.manifest
    for store in stores:
        account = manifest["account"][store.source]
        assert account["documents"] == store.num_documents == sum(account[split]["documents"] for split in SPLITS)
        assert account["tokens"] == store.num_tokens == sum(account[split]["tokens"] for split in SPLITS)
        lengths = np.diff(store.ends(0), prepend=np.uint64(0)).astype(int)
        assert sum(account[split]["cut_documents"] for split in SPLITS) == (lengths + 2 > _WINDOW).sum()
    for split in SPLITS:
        for name in ("documents", "tokens", "rows", "pieces", "cut_documents"):
            total = sum(manifest["account"][store.source][split][name] for store in stores)
            assert manifest["splits"][split][name] == total


def _windows(documents: Documents, options: PackOptions) -> tuple[np.ndarray, np.ndarray]:
    packed = pack_split(documents, ["only"], options, "train", total_documents=len(documents))
    return packed.pieces, packed.window_ends


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=40),
    st.integers(4, 40),
    st.sampled_from(["eos", "none"]),
    st.integers(0, 5),
)
def test_no_two_windows_could_have_been_one(lengths: list[int], window: int, ending: str, seed: int) -> None:
    """Best-fit leaves no two windows that fit into one, and pieces of one document never share one."""
    length = np.array(lengths)
    zeros = np.zeros(len(lengths), dtype=np.uint32)
    documents = Documents(zeros, zeros, np.cumsum(length) - length, length, np.arange(len(lengths), dtype=np.uint64))
    pieces, ends = _windows(documents, PackOptions(window, ending, seed=seed))
    assert ends[-1] == len(pieces)
    rows = piece_rows(pieces, ending)
    windows = np.split(np.arange(len(pieces)), ends[:-1].astype(int))
    used = sorted(int(rows[members].sum()) for members in windows)
    assert used[-1] <= window
    assert len(used) < 2 or used[0] + used[1] > window
    for members in windows:
        assert len(members) >= 1
        assert len(set(pieces["document"][members])) == len(members)


def test_identical_inputs_give_identical_bytes_wherever_they_lie(tmp_path: Path) -> None:
    folders = [tmp_path / "here", tmp_path / "elsewhere" / "deeper"]
    first, second = (make_index(folder, _texts(50), window_tokens=_WINDOW) for folder in folders)
    assert folder_bytes(first) == folder_bytes(second)


def test_the_hash_depends_on_everything_windows_depend_on(tmp_path: Path, stores: list[TokenStore]) -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"seed": 1},
        {"window_tokens": _WINDOW + 1},
        {"end_of_document": "none"},
        {"held_out_fraction": 0.3},
    ]
    hashes = {_pack(stores, tmp_path / str(n), **options).index.hash for n, options in enumerate(variants)}
    hashes.add(_pack(stores[:1], tmp_path / "one").index.hash)
    hashes.add(_pack([make_store(tmp_path, _texts(150, 2), "first"), stores[1]], tmp_path / "other").index.hash)
    assert len(hashes) == len(variants) + 2


def test_the_seed_orders_windows_and_the_pieces_in_them(tmp_path: Path, stores: list[TokenStore]) -> None:
    first, second = (_pack(stores, tmp_path / str(seed), seed=seed).index for seed in (0, 1))
    assert first.pieces("train")["document"].tolist() != second.pieces("train")["document"].tolist()

    def windows(index: PackIndex) -> list[list[int]]:
        split = np.split(index.pieces("train")["document"], index.window_ends("train")[:-1].astype(int))
        return sorted(sorted(window.tolist()) for window in split)

    assert windows(first) == windows(second)
    ends = first.window_ends("train").astype(int)
    lengths = np.split(first.pieces("train")["length"], ends[:-1])
    several = [window for window in lengths if len(window) > 1]
    longest_first = sum(int(np.argmax(window)) == 0 for window in several)
    assert 0 < longest_first < len(several)


def test_held_out_documents_are_chosen_by_their_text(tmp_path: Path, stores: list[TokenStore]) -> None:
    def held_out(stores: list[TokenStore], folder: Path) -> set[int]:
        index = _pack(stores, folder).index
        hashes = np.concatenate([store.text_hashes(0) for store in stores])
        return {int(hashes[number]) for number in index.pieces("held_out")["document"]}

    both = held_out(stores, tmp_path / "both")
    assert both == held_out(stores[::-1], tmp_path / "turned")
    assert held_out(stores[:1], tmp_path / "one") <= both
    larger = _pack(stores, tmp_path / "larger", held_out_fraction=0.5).index.manifest["splits"]["held_out"]
    assert 20 <= len(both) < larger["documents"] <= 150


def test_nothing_held_out(tmp_path: Path, stores: list[TokenStore]) -> None:
    index = _pack(stores, tmp_path, held_out_fraction=0.0).index
    assert index.manifest["splits"]["held_out"]["windows"] == 0
    assert len(index.pieces("held_out")) == len(index.window_ends("held_out")) == 0
    assert index.manifest["splits"]["train"]["documents"] == 240


def test_everything_held_out_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["only one"])
    fraction = (int(store.text_hashes(0)[0]) + 2**60) / 2**64
    with pytest.raises(DataError, match="keeps all 1 documents for held_out"):
        _pack([store], tmp_path / "index", held_out_fraction=min(fraction, 0.9999999))


def test_a_source_that_is_held_out_entirely_is_refused_by_name(tmp_path: Path, stores: list[TokenStore]) -> None:
    single = make_store(tmp_path, ["only one"], "single")
    fraction = (int(single.text_hashes(0)[0]) + 2**60) / 2**64
    assert fraction < 1
    message = r"source single: held_out_fraction=.* keeps all of its 1 documents .* lower it .* leave the source out"
    for mixture in ({}, {"first": 1.0, "single": 1.0}):
        with pytest.raises(DataError, match=message):
            _pack([stores[0], single], tmp_path / "index", held_out_fraction=fraction, mixture=mixture)
    weights = {"first": 1.0, "single": 0.0}  # said to be left out
    account = _pack([stores[0], single], tmp_path / "index", held_out_fraction=fraction, mixture=weights).index.manifest
    assert account["account"]["single"]["held_out"]["documents"] == 1


def test_a_source_that_is_dropped_entirely_is_refused_by_name(tmp_path: Path) -> None:
    stores = [
        make_store(tmp_path, ["x" * (_WINDOW - 2), "y" * (_WINDOW - 2)], "full"),
        make_store(tmp_path, ["z"], "z"),
    ]
    with pytest.raises(DataError, match=r"source z: none of its 1 documents .* \(1 in the last window, dropped\)"):
        _pack(stores, tmp_path / "index", held_out_fraction=0.0, last_windows="drop")
    assert not (tmp_path / "index" / "manifest.json").exists()


def test_the_same_again_does_nothing(tmp_path: Path, stores: list[TokenStore]) -> None:
    assert not _pack(stores, tmp_path).reused
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.name != ".lock"}
    assert _pack(stores, tmp_path).reused
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir() if path.name != ".lock"} == before


def test_other_options_are_refused_by_name_and_replaced_when_asked(tmp_path: Path, stores: list[TokenStore]) -> None:
    first = _pack(stores, tmp_path).index
    with pytest.raises(DataError, match="was packed with other options") as error:
        _pack(stores, tmp_path, window_tokens=32, seed=5, held_out_fraction=0.1, end_of_document="none")
    for line in (
        "window_tokens: packed with 64, now 32",
        "seed: packed with 0, now 5",
        "held_out_fraction: packed with 0.2, now 0.1",
        "end_of_document: packed with 'eos', now 'none'",
    ):
        assert line in str(error.value)
    assert PackIndex(tmp_path).hash == first.hash
    replaced = _pack(stores, tmp_path, window_tokens=32, overwrite=True)
    assert not replaced.reused
    assert PackIndex(tmp_path).window_tokens == 32


def test_other_stores_are_refused_by_name(tmp_path: Path, stores: list[TokenStore]) -> None:
    _pack(stores, tmp_path / "index")
    with pytest.raises(DataError, match="sources: packed with first, second, now first"):
        _pack(stores[:1], tmp_path / "index")
    other = make_store(tmp_path, _texts(10), "second")
    with pytest.raises(DataError, match=r"sources\.second: its token store was made anew"):
        _pack([stores[0], other], tmp_path / "index")


def test_a_damaged_index_is_named_and_overwrite_mends_it(tmp_path: Path, stores: list[TokenStore]) -> None:
    whole = _pack(stores, tmp_path).index.hash
    (tmp_path / "train.windows.bin").write_bytes(b"")
    with pytest.raises(DataError, match=r"train\.windows\.bin has 0 bytes where the manifest says"):
        _pack(stores, tmp_path)
    assert _pack(stores, tmp_path, overwrite=True).index.hash == whole


def test_an_index_that_was_not_finished_is_packed_again(tmp_path: Path, stores: list[TokenStore]) -> None:
    _pack(stores, tmp_path)
    undisturbed = folder_bytes(tmp_path)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "train.pieces.bin").write_bytes(b"half")
    (tmp_path / "train.pieces.bin.123.partial").write_bytes(b"half")
    assert not _pack(stores, tmp_path).reused
    assert folder_bytes(tmp_path) == undisturbed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_tokens": 3}, "window_tokens=3: a window holds at least 4 rows"),
        ({"end_of_document": "bos"}, "end_of_document='bos' is not one of eos, none"),
        ({"held_out_fraction": 1.0}, r"held_out_fraction=1\.0 is not in 0 <= fraction < 1"),
        ({"held_out_fraction": -0.1}, "held_out_fraction"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        PackOptions(**{"window_tokens": 64, **options})


def test_index_and_stores_can_be_moved_together(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "here", _texts(20), window_tokens=_WINDOW)
    shutil.move(tmp_path / "here", tmp_path / "there")
    (store,) = PackIndex(tmp_path / "there" / folder.name).open_stores()
    assert store.num_documents == 20


def test_a_mixture_is_met_within_a_window_and_leaves_held_out_alone(tmp_path: Path, stores: list[TokenStore]) -> None:
    plain = _pack(stores, tmp_path / "plain").index
    mixed = _pack(stores, tmp_path / "mixed", mixture={"first": 1.0, "second": 3.0}, total_tokens=6000).index
    for store, wanted in zip(stores, (1500, 4500), strict=True):
        figures = mixed.manifest["account"][store.source]["train"]
        assert figures["share"]["target_tokens"] == wanted
        assert abs(figures["tokens"] - wanted) < _WINDOW
    assert mixed.pieces("held_out").tobytes() == plain.pieces("held_out").tobytes()


def test_a_repeated_document_has_a_number_for_each_time(tmp_path: Path, stores: list[TokenStore]) -> None:
    train = sum(_pack(stores, tmp_path / "plain").index.manifest["splits"]["train"][name] for name in ("tokens",))
    options = {"total_tokens": 2 * train + 500, "exhausted": "repeat"}
    index = _pack(stores, tmp_path / "twice", **options).index
    times = np.bincount(index.pieces("train")["document"].astype(int) // index.num_documents)
    assert index.num_documents == 240
    assert len(times) == 3
    counts = index.manifest["splits"]["train"]
    assert counts["documents_in"] + counts["repeated"]["documents"] == counts["documents"]
    assert counts["tokens"] == train + counts["repeated"]["tokens"]
    assert abs(counts["tokens"] - 2 * train - 500) < 2 * _WINDOW


def test_what_no_source_has_is_refused(tmp_path: Path, stores: list[TokenStore]) -> None:
    with pytest.raises(DataError, match="domain_tags: no source named third: the sources are first, second"):
        _pack(stores, tmp_path, domain_tags={"third": 5})
    with pytest.raises(DataError, match="the mixture asks for more than its sources have"):
        _pack(stores, tmp_path, mixture={"first": 1, "second": 1}, total_tokens=10**9)
    with pytest.raises(DataError, match=r"exhausted=repeat needs total_tokens"):
        _pack(stores, tmp_path, exhausted="repeat")


def test_stores_of_different_tokenizers_are_refused(tmp_path: Path, stores: list[TokenStore]) -> None:
    write_jsonl(tmp_path / "third.jsonl", [{"text": "x"}])
    tokenizer = load_tokenizer(str(byte_tokenizer(tmp_path / "other", bos=None)))
    (third,) = build_stores([Source("third", str(tmp_path / "third.jsonl"))], tokenizer, tmp_path / "others")
    with pytest.raises(DataError, match=r"different tokenizers: first \(.*\), second \(.*\); third \(.*other\)"):
        _pack([*stores, third.store], tmp_path)


def test_an_index_that_knew_no_such_options_is_still_the_same(tmp_path: Path, stores: list[TokenStore]) -> None:
    _pack(stores, tmp_path)
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["options"] = {name: manifest["options"][name] for name in ("algorithm", "held_out_fraction")}
    path.write_text(json.dumps(manifest))
    assert _pack(stores, tmp_path).reused
    with pytest.raises(DataError, match="long_documents: packed with 'split', now 'head'"):
        _pack(stores, tmp_path, long_documents="head")
