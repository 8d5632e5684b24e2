from __future__ import annotations

from pathlib import Path

import pytest

from data_prep.errors import DataError
from data_prep.read import Source, check_apart, find_files


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("", "*"),
        ("", "*.jsonl"),
        ("**", "*"),
        ("**/*", "*"),
        ("**/*.jsonl", "*"),
        ("*", "*.jsonl"),
        ("s*/web", "*"),
        ("s*/**/files.jsonl", "*.txt"),
        ("store/web/*.jsonl", "*"),
        ("*/*.jsonl", "*"),
        ("*.jsonl", "*"),
        ("**/*.txt", "*"),
        ("*", "*.txt"),
        ("other/**", "*"),
        ("s*/*.jsonl", "*"),
    ],
)
@pytest.mark.parametrize("folder", ["store", ".store"])
def test_exactly_what_would_be_read_is_refused(tmp_path: Path, path: str, pattern: str, folder: str) -> None:
    """By what is found, once the file is there."""
    store = tmp_path / folder / "web"
    source = Source("web", str(tmp_path / path), pattern=pattern)
    try:
        check_apart(source, store, "the token store", ["files.jsonl"])
        refused = False
    except DataError:
        refused = True
    store.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for name in ("a.txt", "a.jsonl", "other/a.txt", "other/a.jsonl", "store/a.jsonl", "store/web/a.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (store / "files.jsonl").write_text("")
    try:
        found = {Path(file.path).resolve() for file in find_files(source)}
    except DataError:  # nothing
        found = set()
    assert refused == ((store / "files.jsonl").resolve() in found)
