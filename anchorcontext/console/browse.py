"""Walking through windows in the terminal, boundary by boundary."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.text import Text

from anchorcontext.console import plain_console
from anchorcontext.console.window import boundary_table
from anchorcontext.data.token_text import TokenText
from anchorcontext.data.windows import PackedWindows
from anchorcontext.errors import ConfigError
from anchorcontext.inspect.window import ShownWindow
from anchorcontext.layout import ARMS

KEYS = {
    "next boundary": ("j", " ", "\x1b[B", "\x1b[C"),
    "previous boundary": ("k", "\x1b[A", "\x1b[D"),
    "next window": ("n", "\x1b[6~"),
    "previous window": ("p", "\x1b[5~"),
    "next arm": ("a",),
    "go to window": ("g",),
    "quit": ("q", "\x1b", "\x03", "\x04"),
}
"""What keys do; arrows and page keys as terminals send them."""

HELP = "j k or arrows: boundaries   n p or page keys: windows   g NUMBER enter: go to   a: arm   q: quit"

_ACTIONS = {key: action for action, keys in KEYS.items() for key in keys}
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|.", re.DOTALL)
_TEXT_TOKENS = 120
_TEXT_LETTERS = 300
_LINES_AROUND = 13  # of the screen, beside the table's rows and the two texts
_SHORTEST_SCREEN = 20


@dataclass(frozen=True)
class Place:
    """Where the reader is.

    Attributes:
        window: number of the window.
        boundary: from 0, the window's begin, to its number of pieces, the end of the last.
        arm: attention arm.
        typed: digits of a window to go to, while they are typed; else None.
        done: the reader has had enough.
    """

    window: int
    boundary: int
    arm: str
    typed: str | None = None
    done: bool = False


def moved(place: Place, key: str, num_windows: int, num_pieces: int) -> Place:
    """Where a key leads; an unknown one nowhere. `num_pieces` is of the window the reader is at."""
    if place.typed is not None and key not in KEYS["quit"]:
        return _typed(place, key, num_windows)
    last = num_windows - 1
    match _ACTIONS.get(key):
        case "next boundary" if place.boundary < num_pieces:
            return replace(place, boundary=place.boundary + 1)
        case "next boundary" | "next window":
            return replace(place, window=place.window + 1, boundary=0) if place.window < last else place
        case "previous boundary" if place.boundary > 0:
            return replace(place, boundary=place.boundary - 1)
        case "previous boundary" | "previous window":
            return replace(place, window=max(place.window - 1, 0), boundary=0)
        case "next arm":
            return replace(place, arm=ARMS[(ARMS.index(place.arm) + 1) % len(ARMS)])
        case "go to window":
            return replace(place, typed="")
        case "quit":
            return replace(place, done=True)
    return place


def _typed(place: Place, key: str, num_windows: int) -> Place:
    assert place.typed is not None
    if key.isdecimal():
        return replace(place, typed=place.typed + key)
    if key in ("\x7f", "\b"):
        return replace(place, typed=place.typed[:-1])
    if key not in ("\r", "\n") or not place.typed:
        return replace(place, typed=None)
    return replace(place, window=min(int(place.typed), num_windows - 1), boundary=0, typed=None)


def view(place: Place, shown: ShownWindow, text: TokenText, boundary_tokens: int, height: int) -> RenderableType:
    """The screen: which boundary it is, the text on both sides, and its rows, as many as fit `height` lines."""
    around = max(min(boundary_tokens, (height - _LINES_AROUND) // 2), 1)
    pieces = shown.layout.num_pieces
    before, after = place.boundary - 1, place.boundary
    title = (
        f"window {place.window:,} of {len(shown.windows):,} ({shown.windows.split})   "
        f"boundary {place.boundary} of {pieces}   arm {place.arm}"
    )
    status = HELP if place.typed is None else f"go to window: {place.typed}_   (enter; 0 to {len(shown.windows) - 1})"
    return Group(
        Text(title, style="bold reverse", no_wrap=True, overflow="ellipsis"),
        *_side(shown, text, before, is_before=True),
        *_side(shown, text, after, is_before=False),
        boundary_table(shown, text, rows_at(shown, place.boundary, around)),
        Text(status, style="dim", no_wrap=True, overflow="ellipsis"),
    )


def rows_at(shown: ShownWindow, boundary: int, around: int) -> Iterator[tuple[int | None, int]]:
    """(piece, row) of the last rows before a boundary and the first after it, prefix rows beside `around`."""
    layout = shown.layout
    used = int(layout.piece_lengths.sum())
    if boundary > 0:
        first = int(layout.piece_offsets[boundary - 1])
        end = first + int(layout.piece_lengths[boundary - 1])
        yield from ((boundary - 1, row) for row in range(max(first, end - around), end))
    if boundary == layout.num_pieces:
        yield from ((None, row) for row in range(used, min(used + around, layout.num_rows)))
        return
    first, rows = int(layout.piece_offsets[boundary]), int(layout.piece_lengths[boundary])
    shown_rows = min(int(layout.prefix_lengths[boundary]) + around, rows)
    yield from ((boundary, row) for row in range(first, first + shown_rows))


def _side(shown: ShownWindow, text: TokenText, piece: int, *, is_before: bool) -> Iterator[Text]:
    """Two lines on the piece before or after a boundary: what it is, and its text next to the boundary."""
    if not 0 <= piece < shown.layout.num_pieces:
        rest = shown.layout.num_rows - int(shown.layout.piece_lengths.sum())
        yield Text("the window begins" if is_before else f"the window ends, {rest:,} rows of padding", style="bold")
        return
    window = shown.window
    source = shown.windows.source_names[window.piece_sources[piece]]
    if is_before:
        what = "ends here" if window.ends[piece] else "is cut here"
    else:
        what = "starts here" if window.starts[piece] else "continues here"
    tokens = shown.tokens(piece)
    excerpt = tokens[-_TEXT_TOKENS:] if is_before else tokens[:_TEXT_TOKENS]
    more = "\u2026" if len(excerpt) < len(tokens) else ""
    name = f"piece {piece}: document {window.document_ids[piece]:,} of {source} {what}   {shown.origin(piece)}"
    yield Text(name, style="bold", no_wrap=True, overflow="ellipsis")
    one_line = " ".join(text.text(excerpt).split())
    yield Text(f"{more}{one_line[-_TEXT_LETTERS:]}" if is_before else f"{one_line[:_TEXT_LETTERS]}{more}")


def check_terminal() -> None:
    """Whether keys can be read and a screen be drawn.

    Raises:
        ConfigError: no terminal, or a system without POSIX terminals.
    """
    fix = "needs a terminal for its keys and its screen; without one, inspect prints a window: leave browse out"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError.of("browse", True, fix)
    try:
        import termios  # noqa: F401
    except ImportError:
        raise ConfigError.of("browse", True, f"{fix} (this system has no POSIX terminals)") from None


def browse(windows: PackedWindows, text: TokenText, number: int, arm: str, boundary_tokens: int) -> None:
    """Show boundaries as keys ask for them, until the reader leaves."""
    place = Place(number, 0, arm)
    shown = ShownWindow(windows, number, arm)
    console = plain_console()
    with console.screen(hide_cursor=True) as screen, _single_keys():
        keys = _read_keys()
        while not place.done:
            if (shown.number, shown.layout.arm) != (place.window, place.arm):
                shown = ShownWindow(windows, place.window, place.arm)
            screen.update(view(place, shown, text, boundary_tokens, max(console.height, _SHORTEST_SCREEN)))
            place = moved(place, next(keys), len(windows), shown.layout.num_pieces)


@contextmanager
def _single_keys() -> Iterator[None]:
    """Let the terminal hand over each key at once and show none of them."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setraw(sys.stdin.fileno(), termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)


def _read_keys() -> Iterator[str]:
    """Keys as they are pressed; at the end of input, the one that quits."""
    while read := os.read(sys.stdin.fileno(), 1024):
        yield from _KEY.findall(read.decode(errors="ignore"))
    yield from iter(lambda: "q", None)
