"""packed windows as a Hugging Face dataset."""

from __future__ import annotations

from anchorcontext.config.schema import ExportDataConfig
from anchorcontext.console import Bars
from anchorcontext.data.export import export_windows


def run(config: ExportDataConfig) -> None:
    """Export the windows and say how to read them.

    Raises:
        ConfigError: a folder that already holds something.
        DataError: an index that cannot be read, or a split without windows.
    """
    with Bars() as bars:
        exported = export_windows(
            config.data.index,
            config.output,
            splits=config.splits,
            windows=config.windows,
            file_tokens=config.file_tokens,
            overwrite=config.overwrite,
            on_progress=bars,
        )
    folder, counts = exported.folder, ", ".join(f"{count:,} {split}" for split, count in exported.windows.items())
    print(
        f"{folder}: {counts} windows in {exported.num_files} files; datasets.load_dataset({str(folder)!r}) reads them"
    )
