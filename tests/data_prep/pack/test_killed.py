"""An index whose making is killed again and again ends with the same bytes."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_prep.pack import LengthRule, PackOptions, build_index
from data_prep.store import TokenStore
from tests.data_prep.corpus import folder_bytes, make_store

_KILLS = 20
_BUILD = """
import json, sys
from pathlib import Path
from data_prep.pack import LengthRule, PackOptions, build_index
from data_prep.store import TokenStore

store, folder, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
options["lengths"] = {name: LengthRule(**rule) for name, rule in options["lengths"].items()}
given = TokenStore(store), PackOptions(**options)
print("begins", flush=True)
build_index([given[0]], given[1], Path(folder))
print("done", flush=True)
"""
_OPTIONS = {
    "window_tokens": 256,
    "held_out_fraction": 0.2,
    "mixture": {"texts": 1.0},
    "total_tokens": 3_000_000,
    "exhausted": "repeat",
    "interleave_chunk_tokens": 16,
}


def _killed_after(seconds: float, store: TokenStore, folder: Path) -> bool:
    """Whether the process was killed before it was done."""
    rules = {"texts": {"min_document_tokens": 3}}
    command = [sys.executable, "-c", _BUILD, str(store.folder), str(folder), json.dumps({**_OPTIONS, "lengths": rules})]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    return "done" not in process.communicate()[0]


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    store = make_store(tmp_path, ["x" * (number % 400 + 1) for number in range(2000)])
    options = PackOptions(**_OPTIONS, lengths={"texts": LengthRule(min_document_tokens=3)})  # type: ignore[arg-type]
    began = time.perf_counter()
    build_index([store], options, tmp_path / "undisturbed")
    took = time.perf_counter() - began
    chance, kills = random.Random(0), 0
    for _ in range(4 * _KILLS):
        folder = tmp_path / f"killed{kills // 4}"  # several times in the same folder
        if _killed_after(chance.uniform(0, took), store, folder):
            kills += 1
        else:  # too late
            shutil.rmtree(folder)
        if kills == _KILLS:
            break
    assert kills == _KILLS
    for number in range(_KILLS // 4):
        folder = tmp_path / f"killed{number}"
        build_index([store], options, folder)
        assert folder_bytes(folder) == folder_bytes(tmp_path / "undisturbed")
