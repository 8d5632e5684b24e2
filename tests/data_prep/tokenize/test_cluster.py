"""The steps for a cluster, run here by hand and by datatrove's own executors where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from data_prep.errors import DataError
from data_prep.read import Source
from data_prep.tokenize import build, build_stores, load_tokenizer, shards
from data_prep.tokenize.cluster import ClusterPlan
from tests.data_prep.corpus import byte_tokenizer, folder_bytes, write_jsonl


@pytest.fixture
def source(tmp_path: Path) -> Source:
    for number in range(6):
        write_jsonl(
            tmp_path / "files" / f"{number}.jsonl",
            [{"text": f"text {number} {line}", "body": "x"} for line in range(50)],
        )
    return Source("many", str(tmp_path / "files"))


@pytest.fixture
def expected(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What one process makes of it, in units of a file."""
    plan = shards.plan_units
    monkeypatch.setattr(build, "plan_units", lambda files, source: plan(files, source, 2000))
    tokenizer = load_tokenizer(str(byte_tokenizer(tmp_path / "tokenizer")))
    (built,) = build_stores([source], tokenizer, tmp_path / "alone")
    assert built.store.num_shards > 4
    return folder_bytes(built.store.folder)


def _plan(tmp_path: Path, source: Source) -> ClusterPlan:
    return ClusterPlan([source], load_tokenizer(str(tmp_path / "tokenizer")), tmp_path / "store")


def test_ranks_one_after_the_other(tmp_path: Path, source: Source, expected: dict[str, bytes]) -> None:
    plan = _plan(tmp_path, source)
    assert plan.num_tasks(3) == 3
    assert plan.num_tasks(1000) == len(list((tmp_path / "files").iterdir()))
    plan.tokenize(None, 1, 3)
    with pytest.raises(DataError, match=r"shards are not finished: run the tokenizing step again"):
        plan.finish()
    for rank in (0, 2, 1):  # one of them a second time
        plan.tokenize(None, rank, 3)
    (built,) = plan.finish()
    assert folder_bytes(built.store.folder) == expected
    assert _plan(tmp_path, source).num_tasks(5) == 1  # nothing left: one rank that finds it so


def test_ranks_of_an_old_plan_write_nothing_into_a_new_one(
    tmp_path: Path, source: Source, expected: dict[str, bytes]
) -> None:
    old = _plan(tmp_path, source)
    old.tokenize(None, 0, 3)
    again = _plan(tmp_path, source)
    old.tokenize(None, 1, 3)  # the same work: both go on
    other = _plan(tmp_path, replace(source, text_field="body"))
    before = folder_bytes(tmp_path / "store")
    for plan in (old, again):
        with pytest.raises(DataError, match=r"store/many is not made by this job's plan any more.*folder of its own"):
            plan.tokenize(None, 2, 3)
        with pytest.raises(DataError, match="is not made by this job's plan any more"):
            plan.finish()
    assert folder_bytes(tmp_path / "store") == before
    other.tokenize(None)
    assert other.finish()[0].store.manifest["options"]["text_field"] == "body"


def test_a_rank_that_comes_when_the_store_is_finished(tmp_path: Path, source: Source, expected: object) -> None:
    plan = _plan(tmp_path, source)
    build_stores([source], load_tokenizer(str(tmp_path / "tokenizer")), tmp_path / "store")
    with pytest.raises(DataError, match="another run finished it or began it anew"):
        plan.tokenize(None)


def test_who_begins_anew_waits_for_shards_under_way(
    tmp_path: Path, source: Source, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that takes up a shard between the two looks at the locks: its plan stays, and so does its job."""
    old = _plan(tmp_path, source)
    plan = tmp_path / "store" / "many" / "plan.json"
    before = plan.read_bytes()

    def busy_without_plan(folder: Path) -> None:
        if not plan.exists():
            raise DataError(f"{folder} is being written by another process")

    with monkeypatch.context() as patch:
        patch.setattr(build, "wait_for_workers", busy_without_plan)
        with pytest.raises(DataError, match="is being written by another process"):
            _plan(tmp_path, replace(source, text_field="body"))
    assert plan.read_bytes() == before
    old.tokenize(None)
    old.finish()


_RUN = """
import sys
from pathlib import Path
from data_prep.read import Source
from data_prep.tokenize import build, load_tokenizer, shards
from data_prep.tokenize.cluster import ClusterPlan
folder = Path(sys.argv[1])
if __name__ == "__main__":
    whole = shards.plan_units
    build.plan_units = lambda files, source: whole(files, source, 2000)
    tokenizer = load_tokenizer(str(folder / "tokenizer"))
    plan = ClusterPlan([Source("many", str(folder / "files"))], tokenizer, folder / "store")
    if sys.argv[2] == "local":
        from datatrove.executor import LocalPipelineExecutor as Executor
        options = {"workers": 2}
    else:
        from datatrove.executor import RayPipelineExecutor as Executor
        options = {"workers": 2, "mem_per_cpu_gb": 0.5}
        import ray
        ray.init(num_cpus=2, include_dashboard=False)
    logs = str(folder / "logs")
    Executor([plan.tokenize], tasks=plan.num_tasks(3), logging_dir=logs + "/tokenize", **options).run()
    plan.finish()
"""


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
def test_datatroves_executors_give_the_same_bytes(
    executor: str, tmp_path: Path, source: Source, expected: dict[str, bytes]
) -> None:
    pytest.importorskip("datatrove", reason="pip install 'anchorcontext[cluster]'", exc_type=ImportError)
    if executor == "ray":
        pytest.importorskip("ray", exc_type=ImportError)
    program = tmp_path / "program.py"
    program.write_text(_RUN)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path), executor], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert folder_bytes(tmp_path / "store" / "many") == expected
