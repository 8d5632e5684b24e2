"""The rotary module that replaces a model's own: fixed float32 frequencies.

Shapes: B batch, T rows, R rotary dimensions of a head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from anchorcontext.errors import ConfigError
from anchorcontext.rope.parameters import inverse_frequencies

_RELATIVE_TOLERANCE = 1e-5
"""Of float32 frequencies against the closed form: base^x loses ln(base) times the rounding of x."""

# How an architecture lays the angles of R/2 pairs over the rotary dimensions.
_ANGLE_LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "halves": lambda angles: torch.cat((angles, angles), dim=-1),
    "neighbours": lambda angles: torch.repeat_interleave(angles, 2, dim=-1),
    "once": lambda angles: angles,
}


class FixedRotary(nn.Module):
    """Cosines and sines of rotary positions, computed in float32.

    Stands for a transformers rotary module on one model instance. Its frequencies are those the
    original was built with; they stay float32 through every cast of the model, and never change at
    run time.

    Args:
        rotary: the model's own module.
        compute: `float32` returns float32 tables, so that the rotation runs in float32 and the
            attention function rounds queries and keys once. `bf16` returns what transformers would.

    Raises:
        ConfigError: a rotary module of an unknown form.
    """

    inv_freq: Tensor

    def __init__(self, rotary: Any, compute: str = "float32") -> None:
        super().__init__()
        self.compute = compute
        self.rope_type: str = getattr(rotary, "rope_type", "default")
        self.attention_scaling = float(rotary.attention_scaling)
        self.register_buffer("inv_freq", rotary.inv_freq.detach().float().clone(), persistent=False)
        self.angle_layout, self._rounds = self._probe(rotary)
        self._lay_out = _ANGLE_LAYOUTS[self.angle_layout]

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Tables for `position_ids` [B, T]: cos and sin, [B, T, R]; of `x`, only the dtype counts."""
        cos, sin = self._tables(position_ids, self._lay_out)
        if self.compute == "bf16" and self._rounds:
            return cos.to(x.dtype), sin.to(x.dtype)
        return cos, sin

    def extra_repr(self) -> str:
        return f"{self.rope_type}, pairs={len(self.inv_freq)}, layout={self.angle_layout}, compute={self.compute}"

    def _tables(self, position_ids: Tensor, lay_out: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        # elementwise, not a matrix product, which TF32 would round: [B, T, 1] * [R/2] -> [B, T, R/2] -> [B, T, R]
        angles = lay_out(position_ids[..., None].float() * self.inv_freq)
        return angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FixedRotary:
        """Move with the model, but keep float32 values whatever dtype it is cast to."""
        frequencies = self.inv_freq
        super()._apply(fn, recurse)
        self.inv_freq = frequencies.to(self.inv_freq.device)
        return self

    def _probe(self, rotary: Any) -> tuple[str, bool]:
        """The layout whose tables equal the original's, and whether it rounds to the activations' dtype."""
        device = self.inv_freq.device
        positions = torch.tensor([[0, 1, 7, 100]], device=device)
        try:
            expected, _ = rotary(torch.empty(1, device=device), positions)
            rounded, _ = rotary(torch.empty(1, device=device, dtype=torch.bfloat16), positions)
        except TypeError as error:
            raise _unknown_form(rotary) from error
        for name, lay_out in _ANGLE_LAYOUTS.items():
            cos, _ = self._tables(positions, lay_out)
            if cos.shape == expected.shape and torch.allclose(cos, expected.float(), atol=1e-5):
                return name, rounded.dtype == torch.bfloat16
        raise _unknown_form(rotary)


def replace_rotary(model: PreTrainedModel, compute: str = "float32") -> FixedRotary:
    """Replace the model's rotary module by a `FixedRotary`, and check its frequencies.

    Raises:
        ConfigError: a model without exactly one rotary module of a known form.
    """
    found = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(getattr(module, "inv_freq", None), Tensor)
    ]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "none"
        raise ConfigError.of(
            "model.path", model.config.model_type, f"needs one rotary module, this architecture has: {names}"
        )
    name, original = found[0]
    rotary = FixedRotary(original, compute)
    model.set_submodule(name, rotary)
    check_frequencies(model)
    return rotary


def find_rotary(module: nn.Module) -> FixedRotary:
    """The `FixedRotary` of a model, also below an engine or a wrapper."""
    for child in module.modules():
        if isinstance(child, FixedRotary):
            return child
    raise LookupError(f"{type(module).__name__} has no FixedRotary; build it with anchorcontext.models.load_model")


def check_frequencies(model: PreTrainedModel) -> None:
    """Compare the frequencies a model holds with the closed form of its config.

    Raises:
        RuntimeError: frequencies that were cast, stale or changed; names the first pair that differs.
    """
    held = find_rotary(model).inv_freq
    expected = inverse_frequencies(model.config).to(held.device)
    if held.dtype != torch.float32 or held.shape != expected.shape:
        raise RuntimeError(
            f"inverse frequencies are {held.dtype} {list(held.shape)}, not float32 {list(expected.shape)}"
        )
    errors = (held.double() / expected - 1).abs()
    if errors.max() > _RELATIVE_TOLERANCE:
        pair = int(errors.argmax())
        raise RuntimeError(
            f"inverse frequency of pair {pair} is {held[pair]:.9g}, but rope_parameters="
            f"{model.config.rope_parameters} give {expected[pair]:.9g}: the base was changed after the model was built"
        )


def frequency_digest(module: nn.Module) -> str:
    """SHA-256 of frequencies and attention scaling, to compare across ranks."""
    rotary = find_rotary(module)
    content = rotary.inv_freq.cpu().numpy().tobytes() + repr(rotary.attention_scaling).encode()
    return hashlib.sha256(content).hexdigest()


def _unknown_form(rotary: nn.Module) -> ConfigError:
    return ConfigError.of(
        "model.path",
        type(rotary).__name__,
        "this rotary module maps positions to angles in a form that is not known here, so its frequencies "
        "cannot be kept in float32; choose another architecture",
    )
