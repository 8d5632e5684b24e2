"""`anchorcontext inspect`: one packed window as a person reads it.

What is shown is what training sees: the rows of `PackedWindows`, and positions, segments and labels
of `WindowLayout`, not a reconstruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import MISSING
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from anchorcontext.config.app import hydra_command
from anchorcontext.config.errors import ConfigError
from anchorcontext.config.schema import InspectConfig
from anchorcontext.console import counted, plain_table, table_console
from anchorcontext.data.token_text import TokenText
from anchorcontext.data.windows import PackedWindows, Window
from anchorcontext.layout import IGNORED_LABEL, WindowLayout

_KIND_STYLES = {"anchor": "bold magenta", "end of document": "bold cyan", "padding": "dim"}


def run(config: InspectConfig) -> None:
    """Print the window, and draw its mask where a picture is asked for.

    Raises:
        ConfigError: no such window.
        DataError: data that is not packed, or a tokenizer other than the index's.
    """
    windows = PackedWindows(config.data.index, config.split)
    if config.window >= len(windows):
        fix = f"the split {config.split} has {len(windows):,} windows: 0 to {len(windows) - 1}"
        raise ConfigError.of("window", config.window, fix)
    tokenizer = windows.tokenizer_path if config.data.tokenizer == MISSING else config.data.tokenizer
    text = TokenText(tokenizer, windows.tokenizer_hash)
    window = windows[config.window]
    layout = window.layout(config.attention.arm)

    console = table_console()
    console.print(header(config, windows, window, layout))
    console.print(piece_table(windows, window, layout, config.max_pieces))
    console.print(boundary_table(windows, window, layout, text, config.boundary_tokens, config.max_pieces))
    for line in index_lines(windows.manifest):
        console.print(line, soft_wrap=True)
    if config.picture is not None:
        _draw(config, windows, window, layout)
        console.print(f"picture of the mask: {config.picture}", soft_wrap=True)


def header(config: InspectConfig, windows: PackedWindows, window: Window, layout: WindowLayout) -> Panel:
    """The window in figures."""
    rows, used = layout.num_rows, int(layout.piece_lengths.sum())
    labels = layout.shift_labels(window.input_ids, window.loss_mask)
    learned = int((labels != IGNORED_LABEL).sum())
    pieces, documents = counted(layout.num_pieces, "piece"), counted(layout.num_documents, "document")
    padding = counted(rows - used, "row")
    lines = [
        f"window {config.window:,} of {len(windows):,} ({config.split}) in {config.data.index}",
        f"{counted(rows, 'row')}: {pieces} of {documents}, {padding} of padding, density {used / rows:.2%}",
        f"{counted(learned, 'label')} to learn, {counted(rows - learned, 'row')} with label {IGNORED_LABEL}",
        f"attention arm {layout.arm}, index {windows.index_hash[:12]}",
    ]
    return Panel("\n".join(lines), title=f"window {config.window:,}", title_align="left")


def piece_table(windows: PackedWindows, window: Window, layout: WindowLayout, max_pieces: int) -> Table:
    """A line a piece: what it is of which document, and where it lies."""
    columns = ("piece", "document", "source", "from", "rows", "tokens", "begin", "end", "positions (anchor, tokens)")
    table = plain_table("Pieces", columns, left=set(columns) - {"piece", "document", "tokens"})
    positions = layout.position_ids.tolist()
    for piece in range(min(layout.num_pieces, max_pieces)):
        first, rows = int(layout.piece_offsets[piece]), int(layout.piece_lengths[piece])
        file, line = windows.origin(window.document_ids[piece])
        tokens = rows - window.prefix_lengths[piece] - _end_rows(windows, window, piece)
        first_token = min(first + window.prefix_lengths[piece], first + rows - 1)
        table.add_row(
            str(piece),
            f"{window.document_ids[piece]:,}",
            windows.source_names[window.piece_sources[piece]],
            f"{file}:{line}" if line else file,
            f"{first:,}-{first + rows - 1:,}",
            f"{tokens:,}",
            "starts" if window.starts[piece] else "continues",
            "ends" if window.ends[piece] else "cut",
            f"{positions[first]:,}, {positions[first_token]:,}-{positions[first + rows - 1]:,}",
        )
    if layout.num_pieces > max_pieces:
        table.caption = f"and {layout.num_pieces - max_pieces:,} more (max_pieces={max_pieces})"
    return table


def boundary_table(
    windows: PackedWindows,
    window: Window,
    layout: WindowLayout,
    text: TokenText,
    boundary_tokens: int,
    max_pieces: int,
) -> Table:
    """The rows around every boundary, with what each row is, where it stands and what it predicts."""
    columns = ("row", "piece", "what", "id", "token", "segment", "position", "label", "predicts")
    table = plain_table("Boundaries", columns, left={"what", "token", "predicts"})
    ids, labels = window.input_ids.tolist(), layout.shift_labels(window.input_ids, window.loss_mask).tolist()
    positions, segments = layout.position_ids.tolist(), layout.segment_ids.tolist()
    kinds = row_kinds(windows, window, layout)
    previous = -1
    for piece, row in boundary_rows(layout, boundary_tokens, max_pieces):
        if row > previous + 1:
            table.add_row("...", *[""] * 8, style="dim")
        kind = kinds.get(row, "padding" if piece is None else "")
        label = labels[row]
        table.add_row(
            f"{row:,}",
            "" if piece is None else str(piece),
            kind,
            str(ids[row]),
            Text(text.of(ids[row])),
            str(segments[row]),
            f"{positions[row]:,}",
            str(label),
            Text(text.of(label)) if label != IGNORED_LABEL else "nothing",
            style=_KIND_STYLES.get(kind, ""),
            end_section=piece is not None and row == layout.piece_offsets[piece] + layout.piece_lengths[piece] - 1,
        )
        previous = row
    return table


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


def row_kinds(windows: PackedWindows, window: Window, layout: WindowLayout) -> dict[int, str]:
    """The rows that are no tokens of a text, by row."""
    kinds = {}
    for piece, (first, rows) in enumerate(zip(layout.piece_offsets.tolist(), window.piece_lengths, strict=True)):
        if window.prefix_lengths[piece]:
            kinds[first] = "anchor"
        if _end_rows(windows, window, piece):
            kinds[first + rows - 1] = "end of document"
    return kinds


def index_lines(manifest: dict[str, Any]) -> Iterator[str]:
    """The whole index in a line a split, and a line on its sources."""
    for split, counts in manifest["splits"].items():
        windows, documents = counted(counts["windows"], "window"), counted(counts["documents"], "document")
        yield f"{split}: {windows}, {counts['density']:.2%} dense, {documents}, {counts['cut_documents']:,} of them cut"
    sources = (f"{name} {counts['tokens']:,}" for name, counts in manifest["account"].items())
    yield f"tokens by source: {', '.join(sources)}"


def _end_rows(windows: PackedWindows, window: Window, piece: int) -> int:
    """End-of-document rows of a piece: 0 or 1."""
    return int(window.ends[piece] and windows.manifest["end_of_document"] == "eos")


def _draw(config: InspectConfig, windows: PackedWindows, window: Window, layout: WindowLayout) -> None:
    from anchorcontext.plots import draw_mask, save  # matplotlib costs a second

    sources = [windows.source_names[number] for number in window.piece_sources]
    title = f"Attention of window {config.window:,} ({config.split}), arm {layout.arm}"
    save(draw_mask(layout, sources, title), Path(str(config.picture)))


main = hydra_command("inspect", run)

if __name__ == "__main__":
    main()
