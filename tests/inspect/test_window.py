"""inspect: what is printed is what training sees, at every boundary."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from anchorcontext.commands.inspect import run
from anchorcontext.config.schema import InspectConfig
from anchorcontext.console.window import boundary_table
from anchorcontext.data.token_text import TokenText
from anchorcontext.data.windows import PackedWindows
from anchorcontext.errors import ConfigError
from anchorcontext.inspect.window import ShownWindow, boundary_rows
from anchorcontext.layout import WindowLayout
from data_prep.errors import DataError
from tests.data_prep.corpus import byte_tokenizer, make_index, save_tokenizer, text_of

TEXTS = {"long": ["abcdefghij" * 4], "short": ["xy</s>z", "pq"]}
"""At 16 rows: one document over three windows; another with the text of a control token in it."""


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("inspect"), TEXTS, window_tokens=16, held_out_fraction=0.0)


def config_for(index: Path, window: int, arm: str = "anchor") -> InspectConfig:
    config = InspectConfig(window=window, boundary_tokens=2)
    config.data.index = str(index)
    config.attention.arm = arm
    return config


def shown(config: InspectConfig, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[list[str]]]:
    """All that is printed, and the cells of the boundary table's lines."""
    run(config)
    windows = PackedWindows(config.data.index, config.split)
    window = ShownWindow(windows, config.window, config.attention.arm)
    text = TokenText(windows.tokenizer_path, windows.tokenizer_hash)
    table = boundary_table(window, text, boundary_rows(window.layout, config.boundary_tokens, config.max_pieces))
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return capsys.readouterr().out, [list(cells) for cells in zip(*columns, strict=True)]


def window_with(index: Path, letters: str) -> int:
    """The window that holds these letters of a text (bytes have ids from 2 on)."""
    windows = PackedWindows(index)
    return next(number for number in range(len(windows)) if letters in text_of(windows[number].input_ids.tolist()))


def test_anchor_and_end_of_document_at_every_boundary(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = window_with(index, "xy</s>z")
    _, lines = shown(config_for(index, number), capsys)
    window = PackedWindows(index)[number]
    anchors = [line for line in lines if line[2] == "anchor"]
    assert len(anchors) == len(window.piece_lengths)
    assert all(line[3:5] == ["0", "'<s>'"] and line[6] == "0" for line in anchors)
    ends = [line for line in lines if line[2] == "end of document"]
    assert len(ends) == sum(window.ends)
    assert all(line[3:5] == ["1", "'</s>'"] and line[7:] == ["-100", "nothing"] for line in ends)
    # the row before an end of document learns to end
    before = [lines[place - 1] for place, line in enumerate(lines) if line[2] == "end of document"]
    assert all(line[7:] == ["1", "'</s>'"] for line in before)


def test_text_of_a_control_token_is_text(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = window_with(index, "xy</s>z")
    config = config_for(index, number)
    config.boundary_tokens = 20
    _, lines = shown(config, capsys)
    letters = [line[4].strip("'") for line in lines if line[2] == ""]
    assert "xy</s>z" in "".join(letters)


def test_a_continued_and_cut_piece(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    windows = PackedWindows(index)
    number = next(n for n in range(len(windows)) if not windows[n].starts[0] and not windows[n].ends[0])
    output, lines = shown(config_for(index, number), capsys)
    assert "continues" in output
    assert "cut" in output
    assert lines[0][2] == "anchor"
    assert lines[0][7:] == ["-100", "nothing"]  # an anchor before a continuation predicts nothing
    assert lines[-1][7:] == ["-100", "nothing"]  # nothing follows a cut
    assert lines[-1][2] == ""


def test_header_figures_equal_the_window(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = window_with(index, "xy</s>z")
    output, _ = shown(config_for(index, number), capsys)
    window = PackedWindows(index)[number]
    layout = window.layout("anchor")
    learned = int((layout.shift_labels(window.input_ids) != -100).sum())
    used = sum(window.piece_lengths)
    assert f"{learned} labels to learn, {16 - learned} rows with label -100" in output
    assert f"density {used / 16:.2%}" in output
    assert f"{16 - used} row" in output
    assert "end of document" in output
    assert "'</s>'" in output
    lines = [line.split() for line in output.splitlines()]
    assert ["long", "1", "0", "40", "40", "0"] in lines
    assert ["short", "2", "0", "9", "9", "0"] in lines
    assert "long.jsonl:1" in output or "short.jsonl:1" in output


def test_positions_are_those_of_the_arm(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    windows = PackedWindows(index)
    number = next(n for n in range(len(windows)) if len(windows[n].piece_lengths) > 1)
    for arm in ("document", "document_reset"):
        _, lines = shown(config_for(index, number, arm), capsys)
        layout = windows[number].layout(arm)
        for line in lines:
            if line[0] != "...":
                assert line[6] == str(layout.position_ids[int(line[0])].item())
                assert line[5] == str(layout.segment_ids[int(line[0])].item())


def test_rows_near_boundaries_once_each_and_in_order() -> None:
    layout = WindowLayout([1, 3, 9, 2], num_rows=20)
    for boundary_tokens in range(12):
        rows = [row for _, row in boundary_rows(layout, boundary_tokens, max_pieces=10)]
        assert rows == sorted(set(rows))
        assert {0, 1, 4, 13} <= set(rows)
    assert [row for _, row in boundary_rows(layout, 1, max_pieces=10)] == [0, 1, 2, 3, 4, 5, 12, 13, 14, 15]
    assert [row for _, row in boundary_rows(layout, 1, max_pieces=2)] == [0, 1, 2, 3]


def test_picture(index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_for(index, 0)
    config.picture = str(tmp_path / "deep" / "mask.png")
    output, _ = shown(config, capsys)
    assert (tmp_path / "deep" / "mask.png").read_bytes().startswith(b"\x89PNG")
    assert config.picture in output


def test_no_such_window(index: Path) -> None:
    count = len(PackedWindows(index))
    with pytest.raises(ConfigError, match=rf"window={count}: the split train has {count} windows: 0 to {count - 1}"):
        run(config_for(index, count))


def test_another_tokenizer_is_refused(index: Path, tmp_path: Path) -> None:
    other = Tokenizer.from_file(str(byte_tokenizer(tmp_path / "bytes") / "tokenizer.json"))
    other.add_tokens(["xy"])
    config = config_for(index, 0)
    config.data.tokenizer = str(save_tokenizer(other, tmp_path / "other"))
    with pytest.raises(DataError, match="is not the one the index was packed with"):
        run(config)
    config.data.tokenizer = str(byte_tokenizer(tmp_path / "copy"))  # the same tokenizer elsewhere will do
    run(config)


def test_file_names_are_shown_in_a_line(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any bytes: line breaks would break the table, and bytes that are no UTF-8 cannot be printed."""
    monkeypatch.setattr(PackedWindows, "origin", lambda self, document: ("a\n\x1b[2J\udce9 \u00e9.jsonl", 3))
    assert ShownWindow(PackedWindows(index), 0, "anchor").origin(0) == "a\\n\\x1b[2J\\udce9 \u00e9.jsonl:3"
