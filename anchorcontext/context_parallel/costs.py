"""What a plan costs: the model behind policy `auto`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_MATMULS = 2 + 5  # forward: scores, output; backward: scores again, and four gradients
_FLOPS_PER_PAIR = 2  # per pair, head and head dimension of one matmul: multiply and add
_TRIPS = 3  # keys and values in forward and backward, their gradients back


@dataclass(frozen=True)
class CostModel:
    """Seconds of one attention layer, forward and backward, on one rank.

    Defaults: Llama-3-8B's heads in BF16 on an H100-class GPU with NVLink. Only ratios matter for
    the choice of a policy.
    """

    query_heads: int = 32
    key_heads: int = 8
    head_dim: int = 128
    bytes_per_element: int = 2
    flops_per_second: float = 500e12
    """What the attention kernel reaches, not the data sheet's figure."""
    bytes_per_second: float = 300e9
    """What one rank receives from the others."""

    def seconds(self, pairs: np.ndarray, rows_received: np.ndarray) -> float:
        """Time of the slowest rank: compute and traffic, one after the other.

        Args:
            pairs: query-key pairs each rank computes, [ranks].
            rows_received: key and value rows each rank receives in a forward pass, [ranks].
        """
        compute = pairs * (_MATMULS * _FLOPS_PER_PAIR * self.query_heads * self.head_dim / self.flops_per_second)
        bytes_per_row = 2 * self.key_heads * self.head_dim * self.bytes_per_element
        traffic = rows_received * (_TRIPS * bytes_per_row / self.bytes_per_second)
        return float((compute + traffic).max())
