"""A plan's stages on the device that computes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anchorcontext.attention import Segments
from anchorcontext.context_parallel.stages import Stage


@dataclass(frozen=True, eq=False)
class DeviceStage:
    """A `Stage` whose indices are tensors on the device that computes."""

    send_rows: Tensor
    send_counts: list[int]
    receive_counts: list[int]
    exchanges: bool
    key_rows: Tensor | None
    segments: Segments
    uses_own: bool = True
    query_rows: Tensor | None = None
    peers: tuple[int, int] | None = None

    @classmethod
    def of(cls, stage: Stage, device: torch.device) -> DeviceStage:
        def placed(rows: np.ndarray) -> Tensor:
            return torch.from_numpy(rows).to(device)

        return cls(
            send_rows=placed(stage.send_rows),
            send_counts=stage.send_counts,
            receive_counts=stage.receive_counts,
            exchanges=stage.exchanges,
            key_rows=None if stage.key_rows is None else placed(stage.key_rows),
            segments=stage.segments,
            uses_own=stage.uses_own,
            query_rows=None if stage.query_rows is None else placed(stage.query_rows),
            peers=stage.peers,
        )

    @classmethod
    def local(cls, segments: Segments) -> DeviceStage:
        """A stage without an exchange, over the rows that are there."""
        return cls(torch.empty(0, dtype=torch.int64), [], [], False, None, segments)
