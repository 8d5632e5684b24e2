"""What DeepSpeed is told, and what it makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from anchorcontext.models.loss import CausalLMLoss
from anchorcontext.train.engine import deepspeed_config, loss_scale, parameter_groups
from tests.models.tiny import tiny_model
from tests.train.data import TinyData
from tests.train.fakes import train_config
from tests.train.runs import metrics, train_here
from tests.workers import run_on


def told(**changes: Any) -> dict[str, Any]:
    return deepspeed_config(train_config(**changes), 3, CausalLMLoss(tiny_model(), 16))


def test_every_dtype_is_explicit() -> None:
    config = told(training__precision="bf16", deepspeed__zero_stage=2)
    assert config["bf16"]["enabled"]
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
    assert config["communication_data_type"] == "fp32"
    assert config["gradient_accumulation_steps"] == 3
    assert config["zero_optimization"]["stage"] == 2
    assert not told()["bf16"]["enabled"]


@pytest.mark.parametrize("norm", [0.0, 1.0])
def test_clipping_is_explicit(norm: float) -> None:
    assert told(optim__max_grad_norm=norm)["gradient_clipping"] == norm  # 0 is off; DeepSpeed's default is 1


def test_offload() -> None:
    zero = told(deepspeed__zero_stage=3, deepspeed__offload_optimizer="cpu")["zero_optimization"]
    assert zero["offload_optimizer"]["device"] == "cpu"
    assert "offload_param" not in zero


def test_only_matrices_decay() -> None:
    model = tiny_model("qwen2")  # has biases
    matrices, vectors = parameter_groups(model, 0.1)
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert {parameter.ndim for parameter in matrices["params"]} == {2}
    assert {parameter.ndim for parameter in vectors["params"]} == {1}
    assert len(matrices["params"]) + len(vectors["params"]) == len(list(model.parameters()))


def test_loss_scale() -> None:
    assert loss_scale(world_size=4, accumulation_steps=3, valid_labels=600) == 0.02
    assert loss_scale(1, 1, 0) == 1  # a step without labels is 0 / 1, not 0 / 0


def dtypes_inside(stage: int) -> dict[str, Any]:
    """Dtypes that a BF16 engine really has, after a step."""
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

    from anchorcontext.models.attention_interface import register
    from anchorcontext.rope import check_frequencies, replace_rotary
    from anchorcontext.train.batches import Batches
    from anchorcontext.train.engine import build_engine, take_step
    from anchorcontext.train.loop import forward_backward
    from anchorcontext.train.ranks import join_ranks
    from tests.train.fakes import FakeWindows

    register()
    with join_ranks(1) as ranks:
        config = train_config(training__precision="bf16", deepspeed__zero_stage=stage, training__micro_batch_windows=3)
        model = tiny_model(attn="anchor")
        rotary = replace_rotary(model)
        wrapped = CausalLMLoss(model.bfloat16(), 50)
        engine = build_engine(wrapped, config, 2)
        (batch,) = Batches(FakeWindows(), config, ranks).steps(1, 1)
        valid_labels = int(ranks.sum(batch.valid_labels)[0])
        forward_backward(engine, batch, ranks, valid_labels)
        take_step(engine, 1e-3)
        check_frequencies(model)
        name, parameter = next(iter(wrapped.named_parameters()))
        master = safe_get_full_fp32_param(parameter)
        moment = safe_get_full_optimizer_state(parameter, "exp_avg")
        found = {
            "name": name,
            "parameter": parameter.dtype,
            "master": master.dtype,
            "master has more digits": bool((master != master.bfloat16().float()).any()),
            "moment": moment.dtype,
            "frequencies": rotary.inv_freq.dtype,
            "accumulation": engine.get_data_types()[1],
            "communication": engine.communication_data_type,
        }
        engine.destroy()
    return found


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_bf16_keeps_float32_where_it_matters(stage: int) -> None:
    for found in run_on(2, dtypes_inside, stage):
        assert found == {
            "name": "model.model.embed_tokens.weight",
            "parameter": torch.bfloat16,
            "master": torch.float32,
            "master has more digits": True,
            "moment": torch.float32,
            "frequencies": torch.float32,
            "accumulation": torch.float32,
            "communication": torch.float32,
        }


def test_clipping_bounds_the_update_and_reports_the_norm_before(tiny_data: TinyData, tmp_path: Path) -> None:
    norms = {}
    for limit in (0.0, 0.1):
        for stage in (0, 1):
            run = tmp_path / f"{limit}-{stage}"
            config = tiny_data.config(run, optim__max_grad_norm=limit, deepspeed__zero_stage=stage, training__steps=1)
            assert run_on(1, train_here, config) == [None]
            norms[limit, stage] = metrics(run)[0]["grad_norm"]
    assert norms[0.1, 0] == pytest.approx(norms[0.0, 0], rel=1e-6)
    assert norms[0.1, 1] == pytest.approx(norms[0.0, 0], rel=1e-6)
    assert norms[0.0, 0] > 0.1
