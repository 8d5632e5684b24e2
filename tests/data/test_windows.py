"""Packed windows: rows as the contract says, whatever the lengths, and safe in loader workers."""

from __future__ import annotations

import itertools
import pickle
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from anchorcontext.data.windows import PackedWindows, Window
from anchorcontext.layout import ARMS
from data_prep.errors import DataError
from data_prep.pack import PackIndex, PackOptions, build_index
from data_prep.read import Source
from data_prep.tokenize import build_stores, load_tokenizer
from tests.data_prep.corpus import byte_tokenizer, make_index, text_of, write_jsonl

_WINDOW = 16
# Lengths around a window and two of them; </s> in a text is text.
_TEXTS = [
    f"{chr(97 + number)}" * length for number, length in enumerate((1, 2, 13, 14, 15, 16, 17, 29, 30, 31, 32, 100))
]
_TEXTS += ["</s>x<s>", "caf\u00e9", "z"]


def _documents(folder: Path, split: str = "train") -> dict[int, str]:
    """The text of every document, joined from its pieces; anchors as ^, end-of-document rows as $."""
    windows = PackedWindows(folder, split)
    places = iter(PackIndex(folder).pieces(split)["start"].tolist())
    found: dict[int, list[tuple[int, str]]] = {}
    for number in range(len(windows)):
        window, row = windows[number], 0
        for length, document in zip(window.piece_lengths, window.document_ids, strict=True):
            text = text_of(window.input_ids[row : row + length].tolist())
            found.setdefault(document, []).append((next(places), text))
            row += length
        assert (window.input_ids[row:] == windows.anchor_id).all()
    return {document: "".join(text for _, text in sorted(parts)) for document, parts in found.items()}


@pytest.mark.parametrize("window", [_WINDOW, 15, 17, 64])
@pytest.mark.parametrize("ending", ["eos", "none"])
def test_documents_come_back_with_an_anchor_a_piece_and_one_end(tmp_path: Path, window: int, ending: str) -> None:
    folder = make_index(tmp_path, _TEXTS, window_tokens=window, end_of_document=ending, held_out_fraction=0.0)
    documents = _documents(folder)
    assert len(documents) == len(_TEXTS)
    for number, text in enumerate(_TEXTS):
        packed = documents[number]
        rows = len(text.encode()) + 1 + (ending == "eos")
        assert packed.replace("^", "").removesuffix("$") == text
        assert packed.startswith("^")
        assert packed.endswith("$") == (ending == "eos")
        assert packed.count("^") > 1 if rows > window else packed.count("^") == 1


def test_a_window_is_what_the_index_says(tmp_path: Path) -> None:
    folder = make_index(
        tmp_path, {"b": ["bb", "c" * 20], "a": ["a"]}, window_tokens=_WINDOW, held_out_fraction=0.0, seed=3
    )
    windows = PackedWindows(folder)
    assert windows.source_names == ["b", "a"]
    assert (windows.anchor_id, windows.eos_id, windows.vocab_size, windows.window_tokens) == (0, 1, 258, _WINDOW)
    pieces: dict[tuple[str, int, bool], tuple[int, int]] = {}
    for number in range(len(windows)):
        window, row = windows[number], 0
        assert window.input_ids.dtype == torch.int64
        assert window.input_ids.shape == (_WINDOW,)
        assert window.prefix_lengths == [1] * len(window.piece_lengths)
        assert window.loss_mask is None
        columns = (window.piece_lengths, window.document_ids, window.starts, window.piece_sources)
        for length, document, starts, source in zip(*columns, strict=True):
            text = text_of(window.input_ids[row : row + length].tolist())
            pieces[text, document, starts] = (length, source)
            row += length
    assert pieces == {
        ("^bb$", 0, True): (4, 0),
        ("^" + "c" * 15, 1, True): (16, 0),
        ("^" + "c" * 5 + "$", 1, False): (7, 0),
        ("^a$", 2, True): (3, 1),
    }


@pytest.mark.parametrize("arm", ARMS)
def test_layouts_count_every_row_and_label_every_token_once(tmp_path: Path, arm: str) -> None:
    windows = PackedWindows(make_index(tmp_path, _TEXTS, window_tokens=_WINDOW, held_out_fraction=0.0))
    labels = 0
    for number in range(len(windows)):
        layout = windows[number].layout(arm)
        assert layout.num_rows == _WINDOW
        labels += int((layout.shift_labels(windows[number].input_ids) != -100).sum())
    manifest = windows.manifest["splits"]["train"]
    continuations = manifest["pieces"] - manifest["documents"]  # the first token behind a cut is not predicted
    assert labels == manifest["tokens"] + manifest["documents"] - continuations


def test_an_end_of_document_row_is_always_predicted(tmp_path: Path) -> None:
    texts = ["x" * length for length in range(1, 4 * _WINDOW)]
    windows = PackedWindows(make_index(tmp_path, texts, window_tokens=_WINDOW, held_out_fraction=0.0))
    predicted = 0
    for number in range(len(windows)):
        window = windows[number]
        predicted += int((window.layout("anchor").shift_labels(window.input_ids) == windows.eos_id).sum())
    assert predicted == len(texts)


def test_splits_share_no_document(tmp_path: Path) -> None:
    folder = make_index(tmp_path, [f"text {n}" for n in range(60)], window_tokens=32, held_out_fraction=0.3)
    train, held_out = (set(_documents(folder, split).values()) for split in ("train", "held_out"))
    assert len(train) + len(held_out) == 60
    assert not train & held_out
    assert len(held_out) >= 5


def _first(batch: list[Window]) -> list[int]:
    return batch[0].input_ids.tolist()


def test_safe_to_hand_to_worker_processes(tmp_path: Path) -> None:
    windows = PackedWindows(make_index(tmp_path, _TEXTS, window_tokens=_WINDOW, held_out_fraction=0.0))
    assert len(pickle.dumps(windows)) < 1000
    loader = DataLoader(windows, num_workers=1, collate_fn=_first, multiprocessing_context="spawn")
    assert list(loader) == [windows[number].input_ids.tolist() for number in range(len(windows))]


def test_packed_anew_while_it_is_read(tmp_path: Path) -> None:
    sources = {name: [f"{name} {number}" * 9 for number in range(40)] for name in "ab"}
    options = {"window_tokens": _WINDOW, "held_out_fraction": 0.0}
    folder = make_index(tmp_path, sources, **options)
    windows, again = PackedWindows(folder), PackedWindows(folder)
    expected = [again[number].input_ids.tolist() for number in range(len(again))]
    pickled = pickle.dumps(windows)
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(folder)
    make_index(tmp_path, {name: [text.upper() for text in texts] for name, texts in sources.items()}, **options)
    assert [windows[number].input_ids.tolist() for number in range(len(windows))] == expected
    with pytest.raises(DataError, match="was packed again while it was being read"):
        pickle.loads(pickled)


def test_more_shards_than_files_may_be_open_at_first(tmp_path: Path) -> None:
    folder = make_index(tmp_path, _TEXTS, window_tokens=_WINDOW, held_out_fraction=0.0)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(tmp_path / "store" / "texts" / "files.jsonl") as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 3, limits[1]))  # of each shard there is a map
        try:
            assert len(PackedWindows(folder)) > 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_packed_anew_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_index(tmp_path, _TEXTS, window_tokens=_WINDOW, held_out_fraction=0.0)
    pieces = PackIndex.pieces

    def pack_then_map(index: PackIndex, split: str) -> np.ndarray:
        shutil.rmtree(tmp_path / "store")
        shutil.rmtree(folder)
        make_index(tmp_path, ["other", "texts"], window_tokens=_WINDOW, held_out_fraction=0.0)
        return pieces(index, split)

    monkeypatch.setattr(PackIndex, "pieces", pack_then_map)
    with pytest.raises(DataError, match="was packed again while it was being read"):
        PackedWindows(folder)


def test_a_window_does_not_share_memory_with_the_store(tmp_path: Path) -> None:
    windows = PackedWindows(make_index(tmp_path, ["text"], window_tokens=_WINDOW, held_out_fraction=0.0))
    before = windows[0].input_ids.clone()
    windows[0].input_ids.zero_()
    assert torch.equal(windows[0].input_ids, before)


def test_moved_with_its_stores(tmp_path: Path) -> None:
    folder = make_index(tmp_path / "here", _TEXTS, window_tokens=_WINDOW, held_out_fraction=0.0)
    before = PackedWindows(folder)[1].input_ids.tolist()
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert PackedWindows(tmp_path / "there" / folder.name)[1].input_ids.tolist() == before


def test_attention_work_is_the_squared_rows_of_documents(tmp_path: Path) -> None:
    windows = PackedWindows(make_index(tmp_path, _TEXTS, window_tokens=_WINDOW, held_out_fraction=0.0))
    expected = [sum(rows**2 for rows in windows[number].piece_lengths) for number in range(len(windows))]
    assert windows.attention_work().tolist() == expected
    chosen = np.array([3, 0, 3, len(windows) - 1])
    assert windows.attention_work(chosen).tolist() == [expected[number] for number in chosen]
    assert windows.attention_work(np.empty(0, dtype=np.int64)).tolist() == []


@pytest.mark.parametrize("index", [-1, 10**6])
def test_no_such_window(tmp_path: Path, index: int) -> None:
    windows = PackedWindows(make_index(tmp_path, ["text"], window_tokens=_WINDOW, held_out_fraction=0.0))
    with pytest.raises(IndexError, match="window"):
        windows[index]


def test_unprepared_data_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="`anchorcontext pack`"):
        PackedWindows(tmp_path)


def test_no_such_split_and_an_empty_one(tmp_path: Path) -> None:
    folder = make_index(tmp_path, ["text"], window_tokens=_WINDOW, held_out_fraction=0.0)
    with pytest.raises(DataError, match="split='test' is not one of train, held_out"):
        PackedWindows(folder, "test")
    with pytest.raises(DataError, match=r"the split held_out of .* has no windows: data\.held_out_fraction=0\.0"):
        PackedWindows(folder, "held_out")


def test_a_domain_tag_follows_the_anchor_of_every_piece_of_its_source(tmp_path: Path) -> None:
    texts = {"a": ["a" * 30, "aa"], "b": ["b" * 30, "bb"]}
    tag = 2 + 35  # some byte's id
    folder = make_index(tmp_path, texts, window_tokens=_WINDOW, held_out_fraction=0.0, domain_tags={"b": tag})
    windows = PackedWindows(folder)
    seen = []
    for number in range(len(windows)):
        window = windows[number]
        for piece, row in enumerate(itertools.accumulate(window.piece_lengths[:-1], initial=0)):
            prefix = window.prefix_lengths[piece]
            assert prefix == 1 + window.piece_sources[piece]
            ids = window.input_ids[row : row + window.piece_lengths[piece]]
            assert ids[:prefix].tolist() == [windows.anchor_id, tag][:prefix]
            seen.append(text_of(ids[prefix:].tolist()))
            labels = window.layout("anchor").shift_labels(window.input_ids)[row : row + prefix].tolist()
            assert labels == [ids[prefix] if window.starts[piece] else -100] * prefix
    assert "".join(sorted("".join(seen))) == "$" * 4 + "a" * 32 + "b" * 32


@pytest.mark.parametrize("arm", ARMS)
def test_interleaved_chunks_continue_their_document(tmp_path: Path, arm: str) -> None:
    texts = ["abcdefghijkl", "ABCDEFGHIJKLMN"]
    folder = make_index(tmp_path, texts, window_tokens=30, held_out_fraction=0.0, interleave_chunk_tokens=3)
    window = PackedWindows(folder)[0]
    assert len(window.piece_lengths) == 4 + 5
    assert sorted(window.prefix_lengths) == [0] * 7 + [1] * 2
    layout = window.layout(arm)
    labels = layout.shift_labels(window.input_ids)
    for document, text in enumerate(texts):
        rows = [
            row
            for piece, begin in enumerate(layout.piece_offsets.tolist())
            if window.document_ids[piece] == document
            for row in range(begin, begin + window.piece_lengths[piece])
        ]
        assert text_of(window.input_ids[rows].tolist()) == f"^{text}$"
        assert text_of(labels[rows[:-1]].tolist()) == f"{text}$"  # a chunk's last row predicts the next chunk
        assert labels[rows[-1]] == -100
        if arm in ("document", "anchor"):  # the later chunks see the earlier, the anchor included
            assert layout.dense_mask()[rows[-1], rows].all()


def test_a_repeated_document_is_another_document_of_the_same_origin(tmp_path: Path) -> None:
    folder = make_index(
        tmp_path, ["abc", "de"], window_tokens=32, held_out_fraction=0.0, total_tokens=15, exhausted="repeat"
    )
    windows = PackedWindows(folder)
    window = windows[0]
    assert len(set(window.document_ids)) == len(window.document_ids) == 6
    assert {windows.origin(document)[1] for document in window.document_ids} == {1, 2}
    assert window.layout("document").num_documents == 6


def test_an_eos_inside_a_document_ends_nothing(tmp_path: Path) -> None:
    """Boundaries are the index's: neither an EOS id among the tokens nor a text that spells it cuts a document."""
    ids = [10, 11, 1, 12, 1, 1, 13]
    write_jsonl(tmp_path / "tokens.jsonl", [{"ids": [0, *ids, 1]}, {"ids": [20, 21]}])
    write_jsonl(tmp_path / "texts.jsonl", [{"text": "ab</s>cd<s></s>e"}, {"text": "fg"}])
    tokenizer = load_tokenizer(str(byte_tokenizer(tmp_path / "tokenizer")))
    sources = [
        Source("texts", str(tmp_path / "texts.jsonl")),
        Source("tokens", str(tmp_path / "tokens.jsonl"), token_field="ids"),
    ]
    stores = [built.store for built in build_stores(sources, tokenizer, tmp_path / "store")]
    assert [store.num_documents for store in stores] == [2, 2]
    spelled = tokenizer.encode(["ab</s>cd<s></s>e"])[0].tolist()
    assert not {0, 1} & set(spelled)
    folder = build_index(stores, PackOptions(64, held_out_fraction=0.0), tmp_path / "index").index.folder
    (window,) = PackedWindows(folder)
    assert len(window.piece_lengths) == len(set(window.document_ids)) == 4
    layout = window.layout("document")
    assert layout.num_documents == 4
    labels, visible = layout.shift_labels(window.input_ids), layout.dense_mask()
    from_zero = window.layout("document_reset").position_ids
    seen = set()
    for length, row in zip(window.piece_lengths, layout.piece_offsets.tolist(), strict=False):
        rows = slice(row, row + length)
        content = window.input_ids[rows].tolist()
        seen.add(tuple(content[1:-1]))
        assert (content[0], content[-1]) == (0, 1)
        assert labels[rows].tolist() == [*content[1:], -100]  # every token is learned, the inner EOS and the one behind
        assert from_zero[rows].tolist() == list(range(length))
        assert visible[rows, rows].tolist() == torch.ones(length, length).tril().bool().tolist()
        assert int(visible[rows].sum()) == length * (length + 1) // 2  # and of no other document
    assert {tuple(ids), (20, 21), tuple(spelled)} <= seen


def test_a_mask_of_the_store_decides_what_is_learned(tmp_path: Path) -> None:
    """Sources with a mask and without in one index; a document's end goes with its last token."""
    asked = [{"ids": list(range(10, 18)), "mask": [0, 0, 0, 0, 1, 1, 1, 1]}]
    asked.append({"ids": list(range(30, 34)), "mask": [1, 1, 0, 0]})
    write_jsonl(tmp_path / "asked.jsonl", asked)
    tokenizer = load_tokenizer(str(byte_tokenizer(tmp_path / "tokenizer")))
    write_jsonl(tmp_path / "plain.jsonl", [{"text": "plain"}])
    sources = [
        Source("asked", str(tmp_path / "asked.jsonl"), token_field="ids", mask_field="mask"),
        Source("plain", str(tmp_path / "plain.jsonl")),
    ]
    stores = [built.store for built in build_stores(sources, tokenizer, tmp_path / "store")]
    folder = build_index(stores, PackOptions(32, held_out_fraction=0.0), tmp_path / "index").index.folder
    window = PackedWindows(folder)[0]
    assert window.loss_mask is not None
    learned = {}
    for piece, row in enumerate(itertools.accumulate(window.piece_lengths[:-1], initial=0)):
        rows = slice(row + 1, row + window.piece_lengths[piece])
        learned[int(window.input_ids[row + 1])] = window.loss_mask[rows].tolist()
    assert learned.pop(10) == [False] * 4 + [True] * 5
    assert learned.pop(30) == [True] * 2 + [False] * 3
    assert learned.popitem()[1] == [True] * 6
    assert not window.loss_mask[sum(window.piece_lengths) :].any()
