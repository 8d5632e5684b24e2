"""Reading an index and its token stores to the last byte."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import DownloadColumn

from anchorcontext.console import counted, progress_bar
from data_prep.errors import DataError
from data_prep.pack.index import PackIndex
from data_prep.verify import store_bytes, verify_index, verify_store


def verify(console: Console, index_folder: str) -> None:
    """Say that an index and its stores are sound.

    Raises:
        DataError: everything that is wrong with them.
    """
    index = PackIndex(Path(index_folder).expanduser())
    folders = [index.folder / entry["path"] for entry in index.manifest["stores"]]
    files = [written for counts in index.manifest["splits"].values() for written in counts["files"].values()]
    index_bytes = sum(written["bytes"] for written in files)
    problems, sizes = [], []
    with progress_bar(counter=DownloadColumn()) as progress:
        for folder in folders:
            try:
                sizes.append(store_bytes(folder))
            except DataError as error:  # verify_store would say the same
                problems.append(str(error))
                continue
            task = progress.add_task(f"reading {folder.name}", total=sizes[-1])
            problems += verify_store(folder, partial(progress.advance, task))
        if not problems:  # which names damaged stores again
            task = progress.add_task(f"reading {index.folder.name}", total=index_bytes)
            problems += verify_index(index.folder, partial(progress.advance, task))
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise DataError(f"{counted(len(problems), 'problem')} in {index_folder} and its token stores:\n{listed}")
    total = index_bytes + sum(sizes)
    console.print(f"sound: {index.folder} and {counted(len(folders), 'token store')}, {total:,} bytes", soft_wrap=True)
