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
def test_exactly_what_would_be_read_is_refused(tmp_path: Path, path: str, pattern: str) -> None:
    """By what is found, once the file is there."""
    store = tmp_path / "store" / "web"
    source = Source("web", str(tmp_path / path), pattern=pattern)
    try:
        check_apart(source, store, "the token store", ["files.jsonl"])
        refused = False
    except DataError:
        refused = True
    store.mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for name in ("a.txt", "a.jsonl", "other/a.txt", "other/a.jsonl", "store/a.jsonl", "store/web/files.jsonl"):
        (tmp_path / name).write_text("")
    found = {Path(file.path).resolve() for file in find_files(source)}
    assert refused == ((store / "files.jsonl").resolve() in found)
