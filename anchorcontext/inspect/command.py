"""What `anchorcontext inspect` does, in which order."""

from __future__ import annotations

from pathlib import Path

from omegaconf import MISSING

from anchorcontext.config.errors import ConfigError
from anchorcontext.config.schema import InspectConfig
from anchorcontext.console import table_console
from anchorcontext.data.token_text import TokenText
from anchorcontext.data.windows import PackedWindows
from anchorcontext.inspect.browse import browse, check_terminal
from anchorcontext.inspect.window import (
    ShownWindow,
    boundary_rows,
    boundary_table,
    header,
    index_lines,
    piece_table,
)


def run(config: InspectConfig) -> None:
    """Print the window, and draw its mask where a picture is asked for; or browse.

    Raises:
        ConfigError: no such window; browsing without a terminal.
        DataError: data that is not packed, or a tokenizer other than the index's.
    """
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
    _print_window(config, windows, text)


def _print_window(config: InspectConfig, windows: PackedWindows, text: TokenText) -> None:
    shown = ShownWindow(windows, config.window, config.attention.arm)
    console = table_console()
    console.print(header(shown, config.data.index))
    console.print(piece_table(shown, config.max_pieces))
    rows = boundary_rows(shown.layout, config.boundary_tokens, config.max_pieces)
    console.print(boundary_table(shown, text, rows))
    for line in index_lines(windows.manifest):
        console.print(line, soft_wrap=True)
    if config.picture is not None:
        _draw(config, shown)
        console.print(f"picture of the mask: {config.picture}", soft_wrap=True)


def _draw(config: InspectConfig, shown: ShownWindow) -> None:
    from anchorcontext.plots import draw_mask, save  # matplotlib costs a second

    sources = [shown.windows.source_names[number] for number in shown.window.piece_sources]
    title = f"Attention of window {shown.number:,} ({config.split}), arm {shown.layout.arm}"
    save(draw_mask(shown.layout, sources, title), Path(str(config.picture)))
