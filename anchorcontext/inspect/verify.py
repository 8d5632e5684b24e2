"""Reading an index and its token stores to the last byte."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from omegaconf import MISSING
from rich.console import Console
from rich.progress import DownloadColumn

from anchorcontext.config.schema import DataConfig
from anchorcontext.console import counted, progress_bar
from data_prep.errors import DataError
from data_prep.pack.index import PackIndex
from data_prep.store import MANIFEST
from data_prep.verify import store_bytes, verify_index, verify_store


def verify(console: Console, data: DataConfig) -> None:
    """Say that an index and its stores are sound, or, where no index is named, the stores in `data.store`.

    Raises:
        DataError: everything that is wrong with them.
    """
    index = None if data.index == MISSING else PackIndex(Path(data.index).expanduser())
    folders = _stores(data.store) if index is None else [index.folder / at["path"] for at in index.manifest["stores"]]
    problems, read_bytes = [], 0
    with progress_bar(counter=DownloadColumn()) as progress:
        for folder in folders:
            try:
                num_bytes = store_bytes(folder)
            except DataError as error:  # verify_store would say the same
                problems.append(str(error))
                continue
            task = progress.add_task(f"reading {folder.name}", total=num_bytes)
            problems += verify_store(folder, partial(progress.advance, task))
            read_bytes += num_bytes
        if index is not None and not problems:  # which names damaged stores again
            files = [written for counts in index.manifest["splits"].values() for written in counts["files"].values()]
            num_bytes = sum(written["bytes"] for written in files)
            task = progress.add_task(f"reading {index.folder.name}", total=num_bytes)
            problems += verify_index(index.folder, partial(progress.advance, task))
            read_bytes += num_bytes
    stores = counted(len(folders), "token store")
    if problems:
        where = f"{stores} in {data.store}" if index is None else f"{data.index} and its token stores"
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise DataError(f"{counted(len(problems), 'problem')} in {where}:\n{listed}")
    sound = f"{stores} in {data.store}" if index is None else f"{index.folder} and {stores}"
    console.print(f"sound: {sound}, {read_bytes:,} bytes", soft_wrap=True)


def _stores(path: str) -> list[Path]:
    """The store that lies there, or those of every source."""
    folder = Path(path).expanduser()
    if (folder / MANIFEST).is_file():
        return [folder]
    if folders := sorted(path for path in folder.glob("*/") if not path.name.startswith(".")):
        return folders
    raise DataError(f"no token store in {folder}: make it with `anchorcontext pack`")
