"""What a plan costs: the model behind policy `auto`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

_FLOPS_PER_PAIR = 2  # per pair, head and head dimension of one matrix product: multiply and add
_FORWARD_MATMULS = 2  # scores and output
_BACKWARD_MATMULS = 5  # scores again, and four gradients
_TRIPS = 3  # keys and values in forward and again in backward, their gradients back


@dataclass(frozen=True)
class CostModel:
    """Seconds of one attention layer, forward and backward.

    Defaults: Llama-3-8B's heads in BF16 on an H100-class GPU with NVLink. Only ratios matter for
    the choice of a policy.

    Raises:
        ValueError: a field that is not positive, or more head groups than key heads.
    """

    query_heads: int = 32
    key_heads: int = 8
    head_dim: int = 128
    bytes_per_element: int = 2
    flops_per_second: float = 500e12
    """What the attention kernel reaches, not the data sheet's figure."""
    bytes_per_second: float = 300e9
    """What one rank receives from the others while all of them receive."""
    head_groups: int = 4
    """Groups of key heads whose exchange overlaps with computing the previous group; 1: no overlap."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"costs: {field.name}={getattr(self, field.name)} must be more than 0")
        if self.head_groups > self.key_heads:
            raise ValueError(f"costs: head_groups={self.head_groups} is more than the {self.key_heads} key_heads")

    def compute_seconds(self, pairs: np.ndarray) -> np.ndarray:
        """Time of the kernels alone, for each rank's query-key pairs."""
        return pairs * (self._pair_seconds * (_FORWARD_MATMULS + _BACKWARD_MATMULS))

    def traffic_seconds(self, rows_received: np.ndarray) -> np.ndarray:
        """Time of all exchanges alone, for the key and value rows each rank receives in a forward pass."""
        return rows_received * (self._row_seconds * _TRIPS)

    def gather_seconds(self, pairs: np.ndarray, rows_received: np.ndarray) -> np.ndarray:
        """Time of each rank under exchange `gather`.

        Nothing hides the exchange of the first group of heads, nor the last group's gradients on
        their way back. The rest overlaps with computing and costs time only where
        it takes longer.
        """
        hidden_share = (self.head_groups - 1) / self.head_groups
        return self._passes(
            pairs,
            rows_received,
            lambda compute, traffic: (
                compute + (1 - hidden_share) * traffic + hidden_share * np.maximum(traffic - compute, 0.0)
            ),
        )

    def ring_seconds(self, pairs: np.ndarray, rows_received: np.ndarray) -> np.ndarray:
        """Time of each rank under exchange `ring`: rows arrive while the previous ones are computed on."""
        return self._passes(pairs, rows_received, np.maximum)

    def serial_seconds(self, pairs: np.ndarray, rows_received: np.ndarray) -> np.ndarray:
        """Time of each rank where nothing overlaps."""
        return self._passes(pairs, rows_received, np.add)

    def _passes(
        self, pairs: np.ndarray, rows_received: np.ndarray, together: Callable[[np.ndarray, np.ndarray], np.ndarray]
    ) -> np.ndarray:
        """Forward and backward, each `together` of its computing and its traffic."""
        compute, traffic = pairs * self._pair_seconds, rows_received * self._row_seconds
        forward = together(compute * _FORWARD_MATMULS, traffic)
        return forward + together(compute * _BACKWARD_MATMULS, traffic * (_TRIPS - 1))

    @property
    def _pair_seconds(self) -> float:
        """Of one query-key pair in one matrix product, all heads."""
        return _FLOPS_PER_PAIR * self.query_heads * self.head_dim / self.flops_per_second

    @property
    def _row_seconds(self) -> float:
        """Of one key and value row on its way, all heads."""
        return 2 * self.key_heads * self.head_dim * self.bytes_per_element / self.bytes_per_second
