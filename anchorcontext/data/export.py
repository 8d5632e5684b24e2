"""Packed windows as a Hugging Face dataset, for other trainers.

A folder of Parquet files with a dataset card: `datasets.load_dataset(FOLDER)` reads it, and it can be
uploaded to a hub as it is. A row is a window, in the order of the index; its columns are what
`AnchorCollator` takes. It needs only the index and its token stores, not what they were made from.
(Checkpoints are exported by `anchorcontext.models.export`.)
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorcontext import progress
from anchorcontext.data.windows import PackedWindows, Window
from anchorcontext.errors import ConfigError
from anchorcontext.progress import OnProgress
from data_prep.disk import only_writer, remove_partial, write_file, write_json
from data_prep.pack.index import PackIndex

if TYPE_CHECKING:
    import pyarrow

FORMAT_VERSION = 1
MANIFEST = "export.json"
CARD = "README.md"
UNFINISHED_CARD = "---\nconfigs:\n- config_name: default\n  data_files: this-export-is-not-finished\n---\n"
"""With which `load_dataset` finds no data, instead of the files that are there."""


@dataclass(frozen=True)
class Exported:
    """A finished export: its folder, the number of windows of each split, and the number of Parquet files."""

    folder: Path
    windows: dict[str, int]
    num_files: int


def export_windows(
    index: str | Path,
    output: str | Path,
    *,
    splits: Sequence[str] = (),
    windows: int = 0,
    file_tokens: int = 33_554_432,
    overwrite: bool = False,
    on_progress: OnProgress = progress.ignore,
) -> Exported:
    """Write the files, then the card that names them, and last the manifest that says that all are there.

    Args:
        splits: empty: those that have windows.
        windows: exported of each split, the first; 0 exports all.
        file_tokens: rows of all windows in a file, at most (but at least one window).
        overwrite: replace an earlier export.
        on_progress: told the windows written of each split.

    Raises:
        ConfigError: a folder that already holds something.
        DataError: an index that cannot be read, or a split without windows.
    """
    folder = Path(output).expanduser()
    there = PackIndex(Path(index).expanduser()).manifest["splits"]
    chosen = splits or [split for split, counts in there.items() if counts["windows"]]
    opened = {split: PackedWindows(index, split) for split in chosen}
    exported = {split: min(windows or len(of_split), len(of_split)) for split, of_split in opened.items()}
    with only_writer(folder):
        _make_room(folder, output, overwrite)
        files: dict[str, dict[str, Any]] = {}
        for split, of_split in opened.items():
            count = exported[split]
            on_progress(f"exporting {split}", 0, count)
            for name, first, end in file_ranges(split, count, of_split.window_tokens, file_tokens):
                files[name] = write_file(folder / name, parquet_bytes(of_split, first, end))
                on_progress(f"exporting {split}", end, count)
        write_file(folder / CARD, card(opened).encode())
        write_json(folder / MANIFEST, _manifest(opened, files))
    return Exported(folder, exported, len(files))


def file_ranges(split: str, count: int, window_tokens: int, file_tokens: int) -> Iterator[tuple[str, int, int]]:
    """Name, first window and end of each file of a split: as many whole windows as `file_tokens` holds."""
    per_file = max(file_tokens // window_tokens, 1)
    num_files = -(-count // per_file)
    for number in range(num_files):
        name = f"{split}-{number:05d}-of-{num_files:05d}.parquet"
        yield name, number * per_file, min((number + 1) * per_file, count)


def parquet_bytes(windows: PackedWindows, first: int, end: int) -> bytes:
    """The Parquet file of windows first .. end-1."""
    import pyarrow
    import pyarrow.parquet

    schema = _schema()
    rows = [_row(windows, windows[number]) for number in range(first, end)]
    columns = [pyarrow.array([row[field.name] for row in rows], type=field.type) for field in schema]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, schema=schema), buffer, compression="zstd")
    return buffer.getvalue()


def card(splits: dict[str, PackedWindows]) -> str:
    """The dataset card: which files are which split, and what a row is."""
    windows = next(iter(splits.values()))
    lines = [
        "---",
        "configs:",
        "- config_name: default",
        "  data_files:",
        *(line for split in splits for line in (f"  - split: {split}", f"    path: {split}-*.parquet")),
        "---",
        f"# Packed windows of {windows.window_tokens:,} rows",
        "",
        f"Pack index `{windows.index_hash}`, tokenizer `{windows.tokenizer_hash}`, anchor id {windows.anchor_id}.",
        "",
        "| column | a window |",
        "| --- | --- |",
        *(f"| `{name}` | {text} |" for name, text in COLUMNS.items()),
        "",
        "`anchorcontext.AnchorCollator` takes rows as they are.",
        "",
    ]
    return "\n".join(lines)


COLUMNS = {
    "input_ids": "int32, a row each; rows that no piece fills hold the anchor id",
    "piece_lengths": "rows of each piece: prefix, tokens, end-of-document row",
    "prefix_lengths": "rows before each piece's tokens",
    "document_ids": "the document of each piece, by its number in the index",
    "starts": "whether each piece begins its document",
    "ends": "whether each piece ends its document",
    "piece_sources": "the source of each piece, by name",
    "loss_mask": "whether the token in each row is to be learned; null: all of them",
}
"""What a row holds."""


def _schema() -> pyarrow.Schema:
    import pyarrow

    values = {
        "input_ids": pyarrow.int32(),
        "piece_lengths": pyarrow.int32(),
        "prefix_lengths": pyarrow.int32(),
        "document_ids": pyarrow.int64(),
        "starts": pyarrow.bool_(),
        "ends": pyarrow.bool_(),
        "piece_sources": pyarrow.string(),
        "loss_mask": pyarrow.bool_(),
    }
    return pyarrow.schema([(name, pyarrow.list_(values[name])) for name in COLUMNS])


def _row(windows: PackedWindows, window: Window) -> dict[str, Any]:
    return {
        "input_ids": window.input_ids.numpy(),
        "piece_lengths": window.piece_lengths,
        "prefix_lengths": window.prefix_lengths,
        "document_ids": window.document_ids,
        "starts": window.starts,
        "ends": window.ends,
        "piece_sources": [windows.source_names[source] for source in window.piece_sources],
        "loss_mask": None if window.loss_mask is None else window.loss_mask.numpy(),
    }


def _make_room(folder: Path, output: str | Path, overwrite: bool) -> None:
    """Empty the folder of an earlier export, and mark it as unfinished.

    Only a folder with a manifest is an export: a folder of somebody's Parquet files and README is left alone.
    """
    remove_partial(folder)
    there = [path for path in folder.iterdir() if path.name != ".lock"]
    parts = [path for path in there if path.suffix == ".parquet" or path.name == CARD]
    if there and not (len(parts) == len(there) - 1 and (folder / MANIFEST).is_file()):
        raise ConfigError.of("output", output, "holds other files: choose another folder")
    if there and not overwrite:
        raise ConfigError.of("output", output, "is not empty: overwrite=true")
    write_json(folder / MANIFEST, {"format_version": FORMAT_VERSION, "finished": False})
    write_file(folder / CARD, UNFINISHED_CARD.encode())
    for path in folder.glob("*.parquet"):
        path.unlink()


def _manifest(splits: dict[str, PackedWindows], files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    windows = next(iter(splits.values()))
    return {
        "format_version": FORMAT_VERSION,
        "finished": True,
        "index_hash": windows.index_hash,
        "window_tokens": windows.window_tokens,
        "tokenizer": {"hash": windows.tokenizer_hash, "anchor_id": windows.anchor_id, "eos_id": windows.eos_id},
        "files": files,
    }
