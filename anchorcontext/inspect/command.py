"""What `anchorcontext inspect` does, in which order."""

from __future__ import annotations

from pathlib import Path

from omegaconf import MISSING
from rich.console import Console

from anchorcontext.config.errors import ConfigError
from anchorcontext.config.schema import InspectConfig
from anchorcontext.console import table_console
from anchorcontext.data.statistics import index_report
from anchorcontext.data.token_text import TokenText
from anchorcontext.data.windows import PackedWindows
from anchorcontext.inspect.browse import browse, check_terminal
from anchorcontext.inspect.verify import verify
from anchorcontext.inspect.window import (
    ShownWindow,
    boundary_rows,
    boundary_table,
    header,
    piece_table,
)
from anchorcontext.report.packing import account_tables, balance_tables


def run(config: InspectConfig) -> None:
    """Print the window and the index, and draw the mask and the statistics where asked for; or browse; or verify.

    Raises:
        ConfigError: no such window; browsing without a terminal.
        DataError: data that is not packed or is damaged, or a tokenizer other than the index's.
    """
    if config.verify:
        verify(table_console(), config.data)
        return
    if config.browse:
        check_terminal()
    windows = PackedWindows(config.data.index, config.split)
    if config.window >= len(windows):
        fix = f"the split {config.split} has {len(windows):,} windows: 0 to {len(windows) - 1}"
        raise ConfigError.of("window", config.window, fix)
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
        _draw(config, shown)
        console.print(f"picture of the mask: {config.picture}", soft_wrap=True)


def _print_index(console: Console, config: InspectConfig) -> None:
    """What the whole index is and what training on it will be like."""
    report = index_report(config.data.index, config.balance, config.attention.arm)
    for figures in (*account_tables(report), *balance_tables(report)):
        console.print(figures.for_terminal())
    if config.statistics is not None:
        from anchorcontext.report.packing_page import packing_page, page_title  # matplotlib costs a second

        path = Path(config.statistics).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(packing_page(page_title(Path(config.data.index)), report), encoding="utf-8")
        console.print(f"statistics: {path}", soft_wrap=True)


def _draw(config: InspectConfig, shown: ShownWindow) -> None:
    from anchorcontext.plots import draw_mask, save  # matplotlib costs a second

    sources = [shown.windows.source_names[number] for number in shown.window.piece_sources]
    title = f"Attention of window {shown.number:,} ({config.split}), arm {shown.layout.arm}"
    save(draw_mask(shown.layout, sources, title), Path(str(config.picture)))
