"""Browsing: where keys lead, what a boundary shows, and a real terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from anchorcontext.commands.inspect import run
from anchorcontext.config.schema import InspectConfig
from anchorcontext.console.browse import KEYS, Place, moved, rows_at, view
from anchorcontext.data.token_text import TokenText
from anchorcontext.data.windows import PackedWindows
from anchorcontext.errors import ConfigError
from anchorcontext.inspect.window import ShownWindow
from anchorcontext.layout import ARMS
from tests.data_prep.corpus import make_index

TEXTS = {"long": ["abcdefghij" * 4], "short": ["xy</s>z", "pq"]}
START = Place(window=1, boundary=0, arm="anchor")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("browse"), TEXTS, window_tokens=16, held_out_fraction=0.0)


def after(keys: str, place: Place = START, num_windows: int = 3, num_pieces: int = 2) -> Place:
    for key in keys:
        place = moved(place, key, num_windows, num_pieces)
    return place


def test_boundaries_lead_into_the_next_window_and_back() -> None:
    assert after("jj") == Place(1, 2, "anchor")
    assert after("jjj") == Place(2, 0, "anchor")
    assert after("jjjjjj" + "j" * 9) == Place(2, 2, "anchor")  # the last window's last
    assert after("jk") == START
    assert after("k") == Place(0, 0, "anchor")
    assert after("kkk") == Place(0, 0, "anchor")
    assert after("jnp") == START
    assert after("x") == START


def test_going_to_a_window() -> None:
    assert after("g2").typed == "2"
    assert after("g2\r") == Place(2, 0, "anchor")
    assert after("g999\r") == Place(2, 0, "anchor")
    assert after("g21\x7f\r") == Place(2, 0, "anchor")
    assert after("g\r") == after("gx") == START
    assert after("g2q").done


def test_arms_in_turn_and_every_quit() -> None:
    assert after("a").arm == ARMS[0]
    assert after("aaaa") == START
    assert all(moved(START, key, 3, 2).done for key in KEYS["quit"])


def test_rows_at_every_boundary_touch_it(index: Path) -> None:
    windows = PackedWindows(index)
    for number in range(len(windows)):
        shown = ShownWindow(windows, number, "anchor")
        ends = [0, *(shown.layout.piece_offsets + shown.layout.piece_lengths).tolist()]
        for boundary, place in enumerate(ends):
            rows = [row for _, row in rows_at(shown, boundary, 2)]
            assert rows == list(range(rows[0], rows[-1] + 1))
            assert rows[0] == max(place - 2, ends[max(boundary - 1, 0)])
            assert rows[0] <= place <= rows[-1] + 1


def drawn(index: Path, place: Place) -> str:
    windows = PackedWindows(index)
    text = TokenText(windows.tokenizer_path, windows.tokenizer_hash)
    console = Console(width=120, height=40, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(view(place, ShownWindow(windows, place.window, place.arm), text, 4, 40))
    console.file.close()
    return console.export_text()


def test_a_boundary_shows_both_texts(index: Path) -> None:
    windows = PackedWindows(index)
    number = next(n for n in range(len(windows)) if len(windows[n].piece_lengths) > 1)
    window = windows[number]
    shown = drawn(index, Place(number, 1, "anchor"))
    assert (
        f"window {number} of {len(windows)} (train)   boundary 1 of {len(window.piece_lengths)}   arm anchor" in shown
    )
    for piece, what in ((0, "ends here" if window.ends[0] else "is cut here"), (1, "starts here")):
        document, source = window.document_ids[piece], windows.source_names[window.piece_sources[piece]]
        assert f"piece {piece}: document {document} of {source} {what}" in shown
    assert "the window begins" in drawn(index, Place(number, 0, "anchor"))
    assert "rows of padding" in drawn(index, Place(number, len(window.piece_lengths), "anchor"))
    assert "go to window: 12_" in drawn(index, Place(number, 0, "anchor", typed="12"))


def test_without_a_terminal_it_says_so(index: Path) -> None:
    config = InspectConfig(browse=True)
    config.data.index = str(index)
    with pytest.raises(ConfigError, match="browse=True: needs a terminal"):
        run(config)


def test_in_a_terminal(index: Path) -> None:
    """Keys typed ahead, in one go, are all obeyed; the terminal is left as it was."""
    assert len(PackedWindows(index)[0].piece_lengths) == 1  # so a second boundary lies in the next window
    main, other = pty.openpty()
    arguments = ["inspect", f"data.index={index}", "browse=true"]
    code = f"import sys; sys.argv[1:] = {arguments}; from anchorcontext.cli import main; main()"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=other, stdout=other, stderr=other, env=environment
    ) as run_:
        os.close(other)
        output, typed = b"", False
        while True:
            try:
                read = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            if not read:
                break
            output += read
            if not typed and b"quit" in output:
                typed = True
                os.write(main, b"j\x1b[Bnq")
        assert run_.wait(timeout=60) == 0
    os.close(main)
    shown = PackedWindows(index)
    assert f"window 0 of {len(shown)} (train)   boundary 1 of 1".encode() in output
    assert f"window 2 of {len(shown)} (train)   boundary 0 of".encode() in output
    assert b"\x1b[?1049l" in output  # the screen is given back
