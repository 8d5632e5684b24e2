"""What a process may use of the machine."""

from __future__ import annotations

import os

import pytest
import torch

from anchorcontext.config import check
from anchorcontext.errors import ConfigError
from anchorcontext.machine import launched_with, usable_cores, uses_gpu
from anchorcontext.train.ranks import join_ranks


def test_ds_accelerator_keeps_everything_off_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert not uses_gpu()
    assert not check.uses_gpu()
    with join_ranks(1) as ranks:
        assert ranks.device.type == "cpu"
    monkeypatch.delenv("DS_ACCELERATOR")
    assert uses_gpu()


def test_cores_where_the_system_does_not_say_which(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == os.cpu_count()


def test_numbers_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THREADS", "3")
    assert (launched_with("THREADS", 1), launched_with("NO_SUCH_NAME", 7)) == (3, 7)
    for value in ("x", "0", "-1", "2.5"):
        monkeypatch.setenv("THREADS", value)
        with pytest.raises(ConfigError, match=f"THREADS={value}: must be a whole number, at least 1"):
            launched_with("THREADS", 1, least=1)
