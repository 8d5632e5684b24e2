"""What a process may use of the machine."""

from __future__ import annotations

import os

import pytest
import torch

from anchorcontext.config import check
from anchorcontext.machine import usable_cores, uses_gpu
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
