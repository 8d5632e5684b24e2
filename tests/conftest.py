"""What holds for every test: no hub, no tracker, no display, one thread, DeepSpeed on the CPU.

Set before anything is imported; processes that a test starts inherit it.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

os.environ.update(
    HF_HUB_OFFLINE="1",
    WANDB_MODE="offline",
    MPLBACKEND="Agg",
    OMP_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
)
os.environ.setdefault("DS_ACCELERATOR", "cpu")  # tests of GPU paths are started with "cuda"
if os.environ["DS_ACCELERATOR"] == "cpu":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the others see the same machine everywhere

# No deadline: a busy machine is no failure. `make test-full` asks for the thorough one.
settings.register_profile("project", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile("project")


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """What a test sets, or the code it calls (a launcher's variables), is gone for the next test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
