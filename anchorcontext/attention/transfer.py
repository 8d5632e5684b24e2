"""Moving what was made on the CPU to the device that computes."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A CPU tensor on `device`: for a GPU copied from pinned memory, without waiting for the copy.

    The copy is ordered on the current stream. The pinned memory is freed by torch once the copy is done.
    """
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
