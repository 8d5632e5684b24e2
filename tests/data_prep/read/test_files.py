"""The files that a source consists of, and that none of them is written by packing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import fsspec
import pytest

from data_prep.errors import DataError
from data_prep.read import Source, check_apart, find_files


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def _names(path: Path | str, **options: str) -> list[str]:
    return [file.name for file in find_files(Source("s", str(path), **options))]


def test_folders_are_searched_recursively_in_order_of_names(tmp_path: Path) -> None:
    _touch(tmp_path, "b.txt", "a/z.txt", "a/deep/er/y.txt", "a.txt", "B.txt")
    assert _names(tmp_path) == ["B.txt", "a.txt", "a/deep/er/y.txt", "a/z.txt", "b.txt"]


def test_pattern_applies_to_file_names(tmp_path: Path) -> None:
    _touch(tmp_path, "a.py", "b.txt", "sub/c.py", "py/d.txt")
    assert _names(tmp_path, pattern="*.py") == ["a.py", "sub/c.py"]


def test_hidden_names_are_left_out_but_read_when_named(tmp_path: Path) -> None:
    _touch(tmp_path, "a.txt", ".hidden.txt", ".git/config", "sub/.cache/b.txt")
    assert _names(tmp_path) == ["a.txt"]
    assert _names(f"{tmp_path}/*") == ["a.txt"]
    assert _names(tmp_path / ".hidden.txt") == [".hidden.txt"]


def test_a_name_that_is_not_utf8_is_said(tmp_path: Path) -> None:
    _touch(tmp_path, "a.txt")
    try:
        (tmp_path / os.fsdecode(b"caf\xe9.md")).write_text("x")
    except OSError:
        pytest.skip("this file system takes no such names")
    with pytest.raises(DataError, match=r"the file name 'caf.*md' is not UTF-8: rename the file"):
        _names(tmp_path)
    assert _names(tmp_path, pattern="*.txt") == ["a.txt"]


def test_globs_and_the_folders_they_match(tmp_path: Path) -> None:
    _touch(tmp_path, "x1/a.txt", "x2/b.txt", "x2/c.md", "y/d.txt")
    assert _names(f"{tmp_path}/x*/*.txt") == ["x1/a.txt", "x2/b.txt"]
    assert _names(f"{tmp_path}/x*", pattern="*.txt") == ["x1/a.txt", "x2/b.txt"]
    assert _names(f"{tmp_path}/**/*.txt") == ["x1/a.txt", "x2/b.txt", "y/d.txt"]
    assert _names(f"{tmp_path}/**") == ["x1/a.txt", "x2/b.txt", "x2/c.md", "y/d.txt"]


def test_a_relative_glob_names_files_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _touch(tmp_path, "a.txt", "b.txt")
    monkeypatch.chdir(tmp_path)
    assert _names("*.txt") == ["a.txt", "b.txt"]


def test_a_folder_whose_name_looks_like_a_glob(tmp_path: Path) -> None:
    _touch(tmp_path, "data[1]/a.txt")
    assert _names(tmp_path / "data[1]") == ["a.txt"]


def test_links_are_followed_and_circles_end(tmp_path: Path) -> None:
    _touch(tmp_path, "big/a.txt", "corpus/b.txt")
    (tmp_path / "corpus" / "linked").symlink_to(tmp_path / "big")
    (tmp_path / "corpus" / "again").symlink_to(tmp_path / "corpus")
    assert _names(tmp_path / "corpus") == ["b.txt", "linked/a.txt"]


def test_globs_follow_circles_of_links_once(tmp_path: Path) -> None:
    _touch(tmp_path, "a/b/x.txt", "y.txt")
    for name in ("a/up", "a/b/up", "a/b/again"):  # three ways round: 3 to the 40th paths
        (tmp_path / name).symlink_to(tmp_path)
    for pattern in ("**/*.txt", "**", "a/../**/*.txt", "**/**/*.txt"):
        assert [name.rpartition("/")[2] for name in _names(f"{tmp_path}/{pattern}")] == ["x.txt", "y.txt"], pattern
    assert _names(f"{tmp_path}/**/b/*.txt") == ["a/b/x.txt"]
    assert _names(f"{tmp_path}/*/b/**/x*") == ["a/b/x.txt"]


def test_a_relative_glob_of_any_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _touch(tmp_path, "a[1]/b/x.txt", ".hidden/x.txt", "x.txt")
    monkeypatch.chdir(tmp_path)
    assert _names("**/*.txt") == ["a[1]/b/x.txt", "x.txt"]


def test_a_broken_link_is_refused(tmp_path: Path) -> None:
    _touch(tmp_path, "a.txt")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nothing")
    (tmp_path / "gone.md").symlink_to("gone.md")
    for path in (str(tmp_path), f"{tmp_path}/*.txt", f"{tmp_path}/**"):
        with pytest.raises(DataError, match=r"gone\.\w+ is a broken link: fix it, remove it, or leave it out"):
            _names(path)
    assert _names(tmp_path, pattern="a*") == ["a.txt"]


def test_a_folder_that_cannot_be_searched_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _touch(tmp_path, "a.txt", "locked/b.txt")
    scandir = os.scandir

    def refuse(path: str) -> object:  # root, whom tests may run as, can read everything
        if path.endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match="locked cannot be searched: Permission denied"):
        _names(tmp_path)


def test_names_survive_a_move(tmp_path: Path) -> None:
    _touch(tmp_path, "here/a/b.txt")
    before = _names(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert _names(tmp_path / "there") == before


def test_formats_by_name(tmp_path: Path) -> None:
    expected = {
        "a.jsonl": "jsonl",
        "b.JSONL.gz": "jsonl",
        "c.ndjson.zst": "jsonl",
        "d.txt.xz": "text",
        "e.py": "text",
        "f.md": "text",
        "g.json.gz": "json",
        "h.csv": "csv",
        "i.parquet": "parquet",
        "j.arrow": "arrow",
        "k.mds.zstd": "mds",
        "l.bin": "megatron",
        "noext": "text",
    }
    _touch(tmp_path, *expected)
    assert {file.name: file.format for file in find_files(Source("s", str(tmp_path)))} == expected


@pytest.mark.parametrize("name", ["a.tar", "a.idx", "a.csv.bz2", "a.tsv.gz"])
def test_auto_refuses_what_is_not_plain_text(tmp_path: Path, name: str) -> None:
    _touch(tmp_path, "a.txt", name)
    with pytest.raises(DataError, match=rf"{name} is of no known format, and not plain text.*`pattern`"):
        find_files(Source("s", str(tmp_path)))
    assert len(_names(tmp_path, format="text")) == 2


def test_formats_that_are_read_in_any_order_cannot_be_compressed(tmp_path: Path) -> None:
    _touch(tmp_path, "a.parquet.gz")
    with pytest.raises(DataError, match=r"a\.parquet\.gz is parquet data inside \.gz: unpack it first"):
        find_files(Source("s", str(tmp_path)))


def test_files_beside_data_are_not_read(tmp_path: Path) -> None:
    _touch(tmp_path, "mds/shard.00000.mds", "megatron/a.bin", "megatron/a.idx", "other/index.json")
    (tmp_path / "mds" / "index.json").write_text('{"shards": [{"raw_data": {"basename": "shard.00000.mds"}}]}')
    assert _names(tmp_path) == ["mds/shard.00000.mds", "megatron/a.bin", "other/index.json"]


def test_a_shard_that_an_index_lists_must_be_there(tmp_path: Path) -> None:
    _touch(tmp_path, "mds/shard.00000.mds", "saved/data-00000-of-00002.arrow", "saved/dataset_info.json")
    shards = [{"raw_data": {"basename": f"shard.0000{number}.mds"}, "zip_data": None} for number in range(3)]
    (tmp_path / "mds" / "index.json").write_text(json.dumps({"shards": shards}))
    files = [{"filename": f"data-0000{number}-of-00002.arrow"} for number in range(2)]
    (tmp_path / "saved" / "state.json").write_text(json.dumps({"_data_files": files}))
    with pytest.raises(DataError, match=r"index\.json lists 2 shard\(s\) that are not there, such as shard\.00001"):
        _names(tmp_path / "mds")
    with pytest.raises(DataError, match=r"state\.json lists 1 file\(s\) that are not there, such as data-00001-of"):
        _names(tmp_path / "saved")
    assert _names(tmp_path / "mds", pattern="*.mds") == ["shard.00000.mds"]
    (tmp_path / "mds" / "index.json").write_text("{}")
    with pytest.raises(DataError, match=r"index\.json is not what mosaicml-streaming writes"):
        _names(tmp_path / "mds")


@pytest.mark.parametrize("path", ["missing", "missing/*.txt"])
def test_nothing_there(tmp_path: Path, path: str) -> None:
    with pytest.raises(DataError, match=r"source s: nothing at .*missing"):
        find_files(Source("s", str(tmp_path / path)))


def test_nothing_matches(tmp_path: Path) -> None:
    _touch(tmp_path, "a.txt", ".b.py")
    with pytest.raises(DataError, match=r"matches pattern '\*.py'"):
        find_files(Source("s", str(tmp_path), pattern="*.py"))


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
        ("**", "*.txt"),
        (".s*", "*"),
        (".s*/web", "*.jsonl"),
        (".s*/**/files.jsonl", "*"),
        (".store/web/*.jsonl", "*"),
        (".store/**", "*.txt"),
        (".*/*/*", "*"),
        (".*", "*.txt"),
        ("**/.s*", "*"),
        ("**/.f*", ".*"),
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


def test_hidden_names_are_read_where_the_dot_is_written(tmp_path: Path) -> None:
    names = ("a.txt", ".b.txt", ".hid/c.txt", ".hid/.d.txt", ".hid/.deep/e.txt", "see/.f.txt", "see/.deep/g.txt")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    expected = {
        ("", "*"): {"a.txt"},
        ("", ".*"): {".b.txt", "see/.f.txt"},
        ("*", "*"): {"a.txt"},
        (".h*", "*"): {".hid/c.txt"},
        (".h*", ".*"): {".hid/.d.txt"},
        (".h*/.d*", "*"): {".hid/.d.txt", ".hid/.deep/e.txt"},
        (".hid/**/*.txt", "*"): {".hid/c.txt"},
        ("**/.d*/*", "*"): {"see/.deep/g.txt"},
        ("**/.*.txt", "*"): {".b.txt", "see/.f.txt"},
    }
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path), "/hidden", recursive=True)
    try:
        for (path, pattern), relative in expected.items():
            here = find_files(Source("s", str(tmp_path / path), pattern=pattern))
            assert {Path(file.path).relative_to(tmp_path).as_posix() for file in here} == relative, (path, pattern)
            if path == "**/.*.txt":  # `**` is at least one folder there
                continue
            there = find_files(Source("s", f"memory://hidden/{path}", pattern=pattern))
            assert {file.path.removeprefix("memory://").removeprefix("/hidden/") for file in there} == relative
    finally:
        memory.rm("/hidden", recursive=True)
