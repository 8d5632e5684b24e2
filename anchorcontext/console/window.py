"""One packed window in a terminal: its figures, its pieces, and the rows around their boundaries."""

from __future__ import annotations

from collections.abc import Iterable

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from anchorcontext.console import plain_table
from anchorcontext.data.token_text import TokenText
from anchorcontext.figures import counted
from anchorcontext.inspect.window import ShownWindow
from anchorcontext.layout import IGNORED_LABEL

_KIND_STYLES = {"anchor": "bold magenta", "tag": "bold yellow", "end of document": "bold cyan", "padding": "dim"}


def header(shown: ShownWindow, index: str) -> Panel:
    """The window in figures."""
    windows, layout = shown.windows, shown.layout
    rows, used = layout.num_rows, int(layout.piece_lengths.sum())
    learned = sum(label != IGNORED_LABEL for label in shown.labels)
    pieces, documents = counted(layout.num_pieces, "piece"), counted(layout.num_documents, "document")
    padding = counted(rows - used, "row")
    lines = [
        f"window {shown.number:,} of {len(windows):,} ({windows.split}) in {index}",
        f"{counted(rows, 'row')}: {pieces} of {documents}, {padding} of padding, density {used / rows:.2%}",
        f"{counted(learned, 'label')} to learn, {counted(rows - learned, 'row')} with label {IGNORED_LABEL}",
        f"attention arm {layout.arm}, index {windows.index_hash[:12]}",
    ]
    return Panel("\n".join(lines), title=f"window {shown.number:,}", title_align="left")


def piece_table(shown: ShownWindow, max_pieces: int) -> Table:
    """One line per piece: which part of which document it is, and where it lies."""
    windows, window, layout = shown.windows, shown.window, shown.layout
    columns = ("piece", "document", "source", "from", "rows", "tokens", "begin", "end", "positions (anchor, tokens)")
    table = plain_table("Pieces", columns, left=set(columns) - {"piece", "document", "tokens"})
    for piece in range(min(layout.num_pieces, max_pieces)):
        first, rows = int(layout.piece_offsets[piece]), int(layout.piece_lengths[piece])
        tokens = rows - window.prefix_lengths[piece] - shown.end_rows(piece)
        first_token = min(first + window.prefix_lengths[piece], first + rows - 1)
        table.add_row(
            str(piece),
            f"{window.document_ids[piece]:,}",
            windows.source_names[window.piece_sources[piece]],
            shown.origin(piece),
            f"{first:,}-{first + rows - 1:,}",
            f"{tokens:,}",
            "starts" if window.starts[piece] else "continues",
            "ends" if window.ends[piece] else "cut",
            f"{shown.positions[first]:,}, {shown.positions[first_token]:,}-{shown.positions[first + rows - 1]:,}",
        )
    if layout.num_pieces > max_pieces:
        table.caption = f"and {layout.num_pieces - max_pieces:,} more (max_pieces={max_pieces})"
    return table


def boundary_table(shown: ShownWindow, text: TokenText, rows: Iterable[tuple[int | None, int]]) -> Table:
    """These rows (see `boundary_rows`): what each is, where it stands and what it predicts."""
    columns = ("row", "piece", "what", "id", "token", "segment", "position", "label", "predicts")
    table = plain_table("Boundaries", columns, left={"what", "token", "predicts"})
    layout = shown.layout
    previous = None
    for piece, row in rows:
        if previous is not None and row > previous + 1:
            table.add_row("...", *[""] * 8, style="dim")
        kind = shown.kinds.get(row, "padding" if piece is None else "")
        label = shown.labels[row]
        table.add_row(
            f"{row:,}",
            "" if piece is None else str(piece),
            kind,
            str(shown.ids[row]),
            Text(text.of(shown.ids[row])),
            str(shown.segments[row]),
            f"{shown.positions[row]:,}",
            str(label),
            Text(text.of(label)) if label != IGNORED_LABEL else "nothing",
            style=_KIND_STYLES.get(kind, ""),
            end_section=piece is not None and row == layout.piece_offsets[piece] + layout.piece_lengths[piece] - 1,
        )
        previous = row
    return table
