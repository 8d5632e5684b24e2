"""The launcher scripts, on launchers that say what they were given."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
CORES = 12


def started(folder: Path, script: str, **variables: str) -> str:
    """What a script hands to its launcher: threads, then arguments; on a machine of `CORES` cores and 4 GPUs."""
    programs = {
        "torchrun": 'echo "threads=$OMP_NUM_THREADS" "$@"',
        "srun": 'shift 2; "$@"',
        "scontrol": "echo node1",
        "nvidia-smi": "printf 'GPU 0\\nGPU 1\\nGPU 2\\nGPU 3\\n'",
        "nproc": f"echo {CORES}",
    }
    for name, line in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    environment |= {"PATH": f"{folder}:{environment['PATH']}", **variables}
    command = ["bash", str(SCRIPTS / script), "experiment=x"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("variables", "threads"),
    [({}, 3), ({"RANKS": "2"}, 6), ({"RANKS": "24"}, 1), ({"RANKS": "2", "OMP_NUM_THREADS": "1"}, 1)],
)
def test_torchrun_gives_a_rank_its_share_of_the_cores(tmp_path: Path, variables: dict[str, str], threads: int) -> None:
    said = started(tmp_path, "torchrun.sh", **variables)
    assert said.startswith(f"threads={threads} ")
    assert f"--nproc-per-node {variables.get('RANKS', 'gpu')} " in said
    assert said.endswith("-m anchorcontext.train experiment=x\n")


def test_slurm_gives_a_rank_its_share_of_the_cores(tmp_path: Path) -> None:
    job = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7"}
    said = started(tmp_path, "slurm.sbatch", **job, SLURM_CPUS_PER_TASK="64", SLURM_GPUS_ON_NODE="8")
    assert said.startswith("threads=8 --nnodes 2 ")
    assert "--rdzv-endpoint node1:29500 " in said
