"""One packed window: what each row is, and the rows around the boundaries of its pieces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from anchorcontext.data.windows import PackedWindows
from anchorcontext.errors import ConfigError
from anchorcontext.layout import WindowLayout

PREFIX_KINDS = ("anchor", "tag")
"""What the rows before a piece's tokens are."""


def check_window(windows: PackedWindows, number: int) -> None:
    """Whether the split has a window of that number.

    Raises:
        ConfigError: it has not.
    """
    if number >= len(windows):
        fix = f"the split {windows.split} has {len(windows):,} windows: 0 to {len(windows) - 1}"
        raise ConfigError.of("window", number, fix)


class ShownWindow:
    """A window, and what each of its rows is.

    Attributes:
        ids, labels, positions, segments: of each row.
        kinds: what the rows are that hold no token of a text, by row.
    """

    def __init__(self, windows: PackedWindows, number: int, arm: str) -> None:
        self.windows = windows
        self.number = number
        self.window = windows[number]
        self.layout = self.window.layout(arm)
        self.ids: list[int] = self.window.input_ids.tolist()
        self.labels: list[int] = self.layout.shift_labels(self.window.input_ids, self.window.loss_mask).tolist()
        self.positions: list[int] = self.layout.position_ids.tolist()
        self.segments: list[int] = self.layout.segment_ids.tolist()
        self.kinds: dict[int, str] = {}
        for piece, first in enumerate(self.layout.piece_offsets.tolist()):
            prefix = zip(range(first, first + self.window.prefix_lengths[piece]), PREFIX_KINDS, strict=False)
            self.kinds.update(prefix)
            if self.end_rows(piece):
                self.kinds[first + self.window.piece_lengths[piece] - 1] = "end of document"

    def end_rows(self, piece: int) -> int:
        """End-of-document rows of a piece: 0 or 1."""
        return int(self.window.ends[piece] and self.windows.manifest["end_of_document"] == "eos")

    def origin(self, piece: int) -> str:
        """File and line of a piece's document."""
        file, line = self.windows.origin(self.window.document_ids[piece])
        file = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in file)
        return f"{file}:{line}" if line else file

    def tokens(self, piece: int) -> list[int]:
        """The ids of a piece that are its text's."""
        first = int(self.layout.piece_offsets[piece])
        end = first + self.window.piece_lengths[piece] - self.end_rows(piece)
        return self.ids[first + self.window.prefix_lengths[piece] : end]


def boundary_rows(layout: WindowLayout, boundary_tokens: int, max_pieces: int) -> Iterator[tuple[int | None, int]]:
    """(piece, row) of the rows within `boundary_tokens` of a piece's begin or end; padding has piece None.

    A piece's prefix rows, and the first rows of padding, are always among them.
    """
    for piece in range(min(layout.num_pieces, max_pieces)):
        first = int(layout.piece_offsets[piece])
        end = first + int(layout.piece_lengths[piece])
        head_end = min(first + int(layout.prefix_lengths[piece]) + boundary_tokens, end)
        for row in [*range(first, head_end), *range(max(head_end, end - boundary_tokens), end)]:
            yield piece, row
    used = int(layout.piece_lengths.sum())
    if layout.num_pieces <= max_pieces:
        for row in range(used, min(used + boundary_tokens, layout.num_rows)):
            yield None, row


def draw_window(shown: ShownWindow, path: str | Path) -> None:
    """Write a picture of the window's attention mask (.png, .svg or .pdf)."""
    from anchorcontext.plots import draw_mask, save  # matplotlib costs a second

    sources = [shown.windows.source_names[number] for number in shown.window.piece_sources]
    title = f"Attention of window {shown.number:,} ({shown.windows.split}), arm {shown.layout.arm}"
    save(draw_mask(shown.layout, sources, title), Path(path))
