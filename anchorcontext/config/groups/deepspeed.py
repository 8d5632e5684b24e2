"""Group `deepspeed`: ZeRO and offload."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anchorcontext.config.rules import number, one_of
from anchorcontext.errors import Problem


@dataclass
class DeepSpeedConfig:
    """ZeRO stage and offload to host memory."""

    zero_stage: int = number(1, 0, 3)
    """What data-parallel ranks shard: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too. BF16
    needs at least 1."""
    offload_optimizer: str = one_of(("none", "cpu"), "none")
    """Where the optimizer state is kept: `none` on the GPU, `cpu` in host memory (GPU training only)."""
    offload_parameters: str = one_of(("none", "cpu"), "none")
    """Where parameters are kept: `none` on the GPU, `cpu` in host memory (GPU training and zero_stage=3 only)."""

    def problems(self, precision: str, has_gpu: Callable[[], bool]) -> Iterator[Problem]:
        """Stages that do not fit the precision or the offload, and offload without a GPU."""
        if precision == "bf16" and self.zero_stage == 0:
            fix = "bf16 needs stage 1, 2 or 3 (stage 0 has no float32 accumulation); or training.precision=float32"
            yield Problem("deepspeed.zero_stage", 0, fix)
        if self.offload_parameters == "cpu" and self.zero_stage != 3:
            fix = f"needs deepspeed.zero_stage=3, not {self.zero_stage}; or choose none"
            yield Problem("deepspeed.offload_parameters", "cpu", fix)
        if self.offload_optimizer == "cpu" and self.zero_stage == 0:
            yield Problem("deepspeed.offload_optimizer", "cpu", "needs deepspeed.zero_stage 1, 2 or 3; or choose none")
        offloads = [key for key in ("offload_optimizer", "offload_parameters") if getattr(self, key) == "cpu"]
        if offloads and not has_gpu():
            for key in offloads:
                yield Problem(f"deepspeed.{key}", "cpu", "there is no GPU here to offload from: choose none")
