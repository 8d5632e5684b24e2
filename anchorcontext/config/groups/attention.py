"""Group `attention`: the arm and the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from omegaconf import MISSING

from anchorcontext.config.rules import one_of
from anchorcontext.errors import Problem


@dataclass
class AttentionConfig:
    """The attention recipe: one file per arm."""

    arm: str = one_of(("full", "document", "document_reset", "anchor"), MISSING)
    """What a row sees and which position it has. `full`: the whole window before it. `document`: its own
    document. `document_reset`: the same, with positions that restart at each document. `anchor`: its own
    document and the shared first token of the window."""
    kernel: str = one_of(("auto", "math", "cpu", "flash", "flash3", "flash4", "flex"), "auto")
    """What computes attention: `auto` chooses for the device; `flash`, `flash3`, `flash4` and `flex` need a
    GPU; `cpu` runs on the CPU alone; `math` is the slow float64 reference."""

    def problems(self, precision: str, has_gpu: Callable[[], bool], trains: bool) -> Iterator[Problem]:
        """A kernel that the device or the precision rules out."""
        kernel = self.kernel
        is_flash = kernel.startswith("flash")
        if (is_flash or (kernel == "flex" and trains)) and not has_gpu():
            yield Problem("attention.kernel", kernel, "needs a GPU, and there is none here: choose auto or cpu")
        if kernel == "cpu" and has_gpu():
            yield Problem("attention.kernel", kernel, "runs on the CPU only, and there is a GPU here: choose auto")
        if is_flash and precision == "float32":
            fix = "computes in bf16 only: choose auto or flex, or precision bf16"
            yield Problem("attention.kernel", kernel, fix)
