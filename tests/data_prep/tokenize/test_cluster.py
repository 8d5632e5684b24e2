"""The steps for a cluster, run here by hand and by datatrove's own executors where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
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
        write_jsonl(tmp_path / "files" / f"{number}.jsonl", [{"text": f"text {number} {line}"} for line in range(50)])
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
