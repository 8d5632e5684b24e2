"""show a packed window as text: pieces, anchors, labels, mask."""

from __future__ import annotations

from omegaconf import MISSING
from rich.console import Console
from rich.progress import DownloadColumn

from anchorcontext.config.schema import InspectConfig
from anchorcontext.console import Bars, figures_table, table_console
from anchorcontext.console.browse import browse, check_terminal
from anchorcontext.console.window import boundary_table, header, piece_table
from anchorcontext.data.statistics import index_report
from anchorcontext.data.token_text import TokenText
from anchorcontext.data.windows import PackedWindows
from anchorcontext.inspect.verify import verify
from anchorcontext.inspect.window import ShownWindow, boundary_rows, check_window, draw_window
from anchorcontext.report.packing import account_tables, balance_tables


def run(config: InspectConfig) -> None:
    """Print the window and the index, and draw the mask and the statistics where asked for; or browse; or verify.

    Raises:
        ConfigError: no such window; browsing without a terminal.
        DataError: data that is not packed or is damaged, or a tokenizer other than the index's.
    """
    if config.verify:
        with Bars(DownloadColumn()) as bars:
            index = None if config.data.index == MISSING else config.data.index
            sound = verify(index, config.data.store, on_progress=bars)
        table_console().print(f"sound: {sound}", soft_wrap=True)
        return
    if config.browse:
        check_terminal()
    windows = PackedWindows(config.data.index, config.split)
    check_window(windows, config.window)
    tokenizer = windows.tokenizer_path if config.data.tokenizer == MISSING else config.data.tokenizer
    text = TokenText(tokenizer, windows.tokenizer_hash)
    if config.browse:
        browse(windows, text, config.window, config.attention.arm, config.boundary_tokens)
        return
    console = table_console()
    _print_window(console, config, windows, text)
    _print_index(console, config)


def _print_window(console: Console, config: InspectConfig, windows: PackedWindows, text: TokenText) -> None:
    shown = ShownWindow(windows, config.window, config.attention.arm)
    console.print(header(shown, config.data.index))
    console.print(piece_table(shown, config.max_pieces))
    rows = boundary_rows(shown.layout, config.boundary_tokens, config.max_pieces)
    console.print(boundary_table(shown, text, rows))
    if config.picture is not None:
        draw_window(shown, config.picture)
        console.print(f"picture of the mask: {config.picture}", soft_wrap=True)


def _print_index(console: Console, config: InspectConfig) -> None:
    """What the whole index is and what training on it will be like."""
    report = index_report(config.data.index, config.balance, config.attention.arm)
    for figures in (*account_tables(report), *balance_tables(report)):
        console.print(figures_table(figures))
    if config.statistics is not None:
        from anchorcontext.report.packing_page import write_packing_page  # matplotlib costs a second

        path = write_packing_page(config.data.index, report, config.statistics)
        console.print(f"statistics: {path}", soft_wrap=True)
