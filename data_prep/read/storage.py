"""Where files lie: on this machine, or at an address that fsspec opens (s3://, gs://, hf://, https://)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from data_prep.errors import DataError

_BLOCK_BYTES = 1 << 20
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
_VERSIONS = ("ETag", "etag", "sha256", "md5Hash", "content_md5", "blob_id")


def is_remote(path: str) -> bool:
    """Whether the path is an address."""
    return "://" in path


def file_system(address: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The file system of an address and the path in it.

    Raises:
        DataError: an unknown kind of address, or the package for it is not installed.
    """
    import fsspec

    try:
        return fsspec.core.url_to_fs(address, **options)
    except Exception as error:  # ImportError names the package; others are the store's own
        raise DataError(f"{address} cannot be opened: {said(error)}") from error


def open_binary(path: str, options: Mapping[str, Any]) -> BinaryIO:
    """Open a file for reading, here or there, without a buffer.

    Raises:
        DataError: it cannot be opened.
    """
    try:
        if not is_remote(path):
            return open(path, "rb", buffering=0)
        files, inside = file_system(path, options)
        return files.open(inside, "rb")
    except DataError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or said(error)
        raise DataError(f"{path} cannot be read: {reason}") from error


def said(error: Exception) -> str:
    """What an error says, or its kind where it says nothing."""
    return str(error) or repr(error)


@contextmanager
def on_this_machine(path: str, options: Mapping[str, Any]) -> Iterator[str]:
    """The path of a file that can be read in any order: a remote one is copied to a temporary file first."""
    if not is_remote(path):
        yield path
        return
    with tempfile.NamedTemporaryFile(suffix=Path(path).suffix) as copy:
        with open_binary(path, options) as file:
            shutil.copyfileobj(file, copy, _BLOCK_BYTES)
        copy.flush()
        yield copy.name


def remote_files(address: str, options: Mapping[str, Any]) -> tuple[str, dict[str, dict[str, Any]]]:
    """Every file at an address: a file, a folder or a glob.

    Returns:
        The path that names are relative to, and what the store says of each file, by path.

    Raises:
        DataError: the store cannot be asked.
    """
    files, path = file_system(address, options)
    try:
        if any(wild in path for wild in "*?["):
            found = files.glob(path, detail=True)
            fixed = path[: min(path.index(wild) for wild in "*?[" if wild in path)]
            root = fixed.rpartition("/")[0]
            for folder in [name for name, info in found.items() if info["type"] == "directory"]:
                found |= files.find(folder, detail=True)
        elif files.isfile(path):
            found, root = {path: files.info(path)}, path.rpartition("/")[0]
        else:
            found, root = files.find(path, detail=True) if files.exists(path) else {}, path.rstrip("/")
    except Exception as error:
        raise DataError(f"{address} cannot be listed: {said(error)}") from error
    return root, {files.unstrip_protocol(name): info for name, info in found.items() if info["type"] == "file"}


def time_and_version(info: Mapping[str, Any]) -> tuple[int, str]:
    """When a remote file last changed, in nanoseconds (0: not said), and what the store calls its version."""
    time: Any = next((info[name] for name in _TIMES if info.get(name)), 0)
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            time = 0
    if isinstance(time, datetime):
        time = time.timestamp()
    version = next((info[name] for name in _VERSIONS if info.get(name)), "")
    return int(time * 1_000_000_000), str(version)
