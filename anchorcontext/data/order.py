"""Which window comes when: a pure function of (index hash, seed, epoch, index).

Windows have a global number, counted over the whole run: step s of B windows uses numbers
[s * B, (s + 1) * B), whatever the ranks. Epoch e is numbers [e * W, (e + 1) * W) of W windows, each
once, in that epoch's own order. So a run continues by seeking: nothing is skipped over.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from data_prep.errors import DataError
from data_prep.permutation import seeded_permutation


def window_order(index_hash: str, seed: int, epoch: int, num_windows: int) -> np.ndarray:
    """The windows of an epoch in their order, int64 [num_windows]; the same on every platform."""
    return seeded_permutation(num_windows, "order", index_hash, seed, epoch)


class WindowOrder:
    """Global number -> window.

    Args:
        index_hash: of the pack index.
        seed: of the data order.
        num_windows: windows of the split, at least 1.
    """

    def __init__(self, index_hash: str, seed: int, num_windows: int) -> None:
        assert num_windows >= 1, "an order needs windows"
        self.index_hash = index_hash
        self.seed = seed
        self.num_windows = num_windows
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    def window(self, global_index: int) -> int:
        """The window with this global number, 0 .. num_windows-1."""
        epoch, within = divmod(global_index, self.num_windows)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, window_order(self.index_hash, self.seed, epoch, self.num_windows)
        return int(self._order[within])

    def state(self, windows_consumed: int) -> DataState:
        """Where a run stands that has used the global numbers 0 .. windows_consumed-1."""
        return DataState(self.index_hash, self.seed, windows_consumed // self.num_windows, windows_consumed)


@dataclass(frozen=True)
class DataState:
    """Where a run stands in its data; what a checkpoint holds of it.

    Attributes:
        index_hash: of the pack index.
        seed: of the data order.
        epoch: of the next window, from 0.
        windows_consumed: since the run began, over all epochs; the next window's global number.
    """

    index_hash: str
    seed: int
    epoch: int
    windows_consumed: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> DataState:
        """Raises DataError where a number is missing or unknown, naming it."""
        names = {field.name for field in fields(cls)}
        if odd := names.symmetric_difference(state):
            raise DataError(f"the data state has not the fields {', '.join(sorted(names))}: {', '.join(sorted(odd))}")
        return cls(**state)

    def check(self, order: WindowOrder) -> None:
        """Refuse to go on with other data than before.

        Raises:
            DataError: the index, the seed or the number of windows changed; names each.
        """
        changed = [
            f"{name}: was {was}, now {now}"
            for name, was, now in (
                ("index_hash", self.index_hash, order.index_hash),
                ("seed", self.seed, order.seed),
                ("epoch", self.epoch, self.windows_consumed // order.num_windows),
            )
            if was != now
        ]
        if changed:
            raise DataError(
                "the data changed since the checkpoint was saved ("
                + "; ".join(changed)
                + "): go on with the same data.index and seed, or start a new run"
            )
