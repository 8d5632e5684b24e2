"""Reading an index and its token stores to the last byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anchorcontext import progress
from anchorcontext.figures import counted
from anchorcontext.progress import OnProgress
from data_prep.errors import DataError
from data_prep.pack.index import PackIndex
from data_prep.store import MANIFEST
from data_prep.verify import store_bytes, verify_index, verify_store


def verify(index: str | None, store: str = "", *, on_progress: OnProgress = progress.ignore) -> str:
    """What was read and is sound: an index and its stores, or, without an index, the stores in `store`.

    Args:
        on_progress: told the bytes read of each store and of the index.

    Raises:
        DataError: everything that is wrong with them.
    """
    opened = None if index is None else PackIndex(Path(index).expanduser())
    folders = _stores(store) if opened is None else [opened.folder / at["path"] for at in opened.manifest["stores"]]
    problems, read_bytes = [], 0
    for folder in folders:
        try:
            num_bytes = store_bytes(folder)
        except DataError as error:  # verify_store would say the same
            problems.append(str(error))
            continue
        problems += verify_store(folder, _added_up(on_progress, folder.name, num_bytes))
        read_bytes += num_bytes
    if opened is not None and not problems:  # it would name damaged stores again
        files = [written for counts in opened.manifest["splits"].values() for written in counts["files"].values()]
        num_bytes = sum(written["bytes"] for written in files)
        problems += verify_index(opened.folder, _added_up(on_progress, opened.folder.name, num_bytes))
        read_bytes += num_bytes
    stores = counted(len(folders), "token store")
    if problems:
        where = f"{stores} in {store}" if opened is None else f"{index} and its token stores"
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise DataError(f"{counted(len(problems), 'problem')} in {where}:\n{listed}")
    sound = f"{stores} in {store}" if opened is None else f"{opened.folder} and {stores}"
    return f"{sound}, {read_bytes:,} bytes"


def _added_up(on_progress: OnProgress, name: str, total: int) -> Callable[[int], None]:
    """A function that is told the bytes of each read, and tells `on_progress` their sum."""
    done = 0

    def advance(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        on_progress(f"reading {name}", done, total)

    advance(0)
    return advance


def _stores(path: str) -> list[Path]:
    """The store that lies there, or those of every source."""
    folder = Path(path).expanduser()
    if (folder / MANIFEST).is_file():
        return [folder]
    if folders := sorted(path for path in folder.glob("*/") if not path.name.startswith(".")):
        return folders
    raise DataError(f"no token store in {folder}: make it with `anchorcontext pack`")
