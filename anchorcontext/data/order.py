"""Which window comes when: a pure function of (index hash, seed, epoch, index).

Windows have a global number, counted over the whole run: step s of B windows uses numbers
[s * B, (s + 1) * B), whatever the ranks. Epoch e is numbers [e * W, (e + 1) * W) of W windows, each
once, in that epoch's own order. So a run continues by seeking: nothing is skipped over.

That order is a plain permutation, or one whose steps are balanced: see `WindowOrder`.
"""

from __future__ import annotations

from collections.abc import Callable
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

    With `balance_steps` = k, blocks of k steps of the plain permutation are taken one by one: a
    block's windows are sorted by attention work, cut into steps, and the steps permuted. So the windows
    of a step cost about the same, and a block keeps its windows. No block reaches
    beyond an epoch. The order depends on no rank; it depends on the windows of a step.

    Args:
        index_hash: of the pack index.
        seed: of the data order.
        num_windows: windows of the split, at least 1.
        balance_steps: steps of a block; 0: the plain permutation.
        windows_per_step: windows of a step, over all ranks.
        work: attention work of windows, int64, by their numbers; asked a block at a time. Needed to balance.
    """

    def __init__(
        self,
        index_hash: str,
        seed: int,
        num_windows: int,
        *,
        balance_steps: int = 0,
        windows_per_step: int = 1,
        work: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        assert num_windows >= 1, "an order needs windows"
        assert work is not None or not balance_steps, "balanced steps need the windows' work"
        self.index_hash = index_hash
        self.seed = seed
        self.num_windows = num_windows
        self.windows_per_step = windows_per_step
        self._block_windows = balance_steps * windows_per_step
        self._work = work
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)
        self._block = (0, np.empty(0, dtype=np.int64))  # first global number, windows

    def window(self, global_index: int) -> int:
        """The window with this global number, 0 .. num_windows-1."""
        if not self._block_windows:
            epoch, within = divmod(global_index, self.num_windows)
            return int(self._plain(epoch)[within])
        first, windows = self._block
        if not first <= global_index < first + len(windows):
            first, windows = self._block = self._balanced(global_index)
        return int(windows[global_index - first])

    def windows(self, first: int, end: int) -> np.ndarray:
        """The windows with the global numbers first .. end-1, int64."""
        return np.fromiter((self.window(number) for number in range(first, end)), dtype=np.int64, count=end - first)

    def _plain(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            self._epoch, self._order = epoch, window_order(self.index_hash, self.seed, epoch, self.num_windows)
        return self._order

    def _balanced(self, global_index: int) -> tuple[int, np.ndarray]:
        """The block around a global number: its first number and its windows in their order."""
        assert self._work is not None
        epoch, block = global_index // self.num_windows, global_index // self._block_windows
        begin = epoch * self.num_windows
        first = max(block * self._block_windows, begin)
        end = min((block + 1) * self._block_windows, begin + self.num_windows)
        windows = self._plain(epoch)[first - begin : end - begin]
        # A step that reaches into the block before or after, of another epoch, has fewer windows here.
        steps = np.arange(first, end) // self.windows_per_step - first // self.windows_per_step
        place = seeded_permutation(int(steps[-1]) + 1, "steps", self.index_hash, self.seed, epoch, block)
        slots = steps[np.argsort(place[steps], kind="stable")]  # steps in the order in which they are filled
        step_of = np.empty_like(slots)
        step_of[np.argsort(self._work(windows), kind="stable")] = slots
        return first, windows[np.argsort(step_of, kind="stable")]

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
        """Refuse to continue with different data.

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
