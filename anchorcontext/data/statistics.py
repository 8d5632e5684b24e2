"""Statistics of a pack index: what packing did to the documents, and how training on the windows will behave.

The account of documents and tokens is the packer's own; added is what needs layouts, plans or the
order of training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from anchorcontext.config.schema import BalanceConfig
from anchorcontext.context_parallel import CostModel, plan_context
from anchorcontext.context_parallel.figures import plan_figures
from anchorcontext.data.balance import StepShape, efficiencies
from anchorcontext.data.windows import PackedWindows
from data_prep.disk import read_json, write_json
from data_prep.errors import DataError
from data_prep.pack.index import PackIndex

FORMAT_VERSION = 2
REPORT = "report.json"
TRAIN = "train"
USED_EDGES = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
"""Shares of a window's rows: windows are counted from one to the next, full ones by themselves."""


def index_report(folder: str | Path, balance: BalanceConfig, arm: str = "anchor") -> dict[str, Any]:
    """The report of an index, as JSON values.

    Returns:
        `index_hash`, `window_tokens`, `end_of_document`, `seed`, `options`, `sources` and `splits`,
        as in the index's manifest; of each split with windows also `used` (windows by the share of
        their rows that is used) and `context_parallel` (see `context_balance`), of the training split
        `step_efficiency` by `order.balance_steps`; `mixture_estimate` (see the function); and
        `balance` and `arm`, what these are for.

    Raises:
        DataError: an index that cannot be read, or whose manifest has no full account.
    """
    index = PackIndex(Path(folder).expanduser())
    manifest = index.manifest
    if "work" not in manifest["splits"][TRAIN]:
        raise DataError(
            f"the pack index {folder} was packed before the account of lengths and work was kept: pack again with "
            "`anchorcontext pack overwrite=true`"
        )
    splits = {}
    for split, counts in manifest["splits"].items():
        splits[split] = {name: value for name, value in counts.items() if name != "files"}
        if counts["windows"]:
            splits[split] |= _of_windows(PackedWindows(folder, split), balance, arm)
    return {
        "format_version": FORMAT_VERSION,
        "index_hash": index.hash,
        **{name: manifest[name] for name in ("window_tokens", "end_of_document", "seed", "options")},
        "sources": manifest["account"],
        "mixture_estimate": mixture_estimate(manifest["account"], manifest["options"]),
        "splits": splits,
        "arm": arm,
        "balance": asdict(balance),
    }


def stored_report(folder: str | Path, balance: BalanceConfig | None = None) -> dict[str, Any] | None:
    """The report that `pack` left in an index; None where there is none that holds for it.

    Args:
        balance: what it must have been made for. None: anything.

    Raises:
        DataError: an index that cannot be read.
    """
    index = PackIndex(Path(folder).expanduser())
    if not (index.folder / REPORT).is_file():
        return None
    try:
        report = read_json(index.folder / REPORT)
    except DataError:
        return None
    wanted = {"format_version": FORMAT_VERSION, "index_hash": index.hash}
    if balance is not None:
        wanted["balance"] = asdict(balance)
    return report if all(report.get(name) == value for name, value in wanted.items()) else None


def write_report(folder: Path, balance: BalanceConfig) -> dict[str, Any]:
    """The report of an index, kept in it; one that is there is taken where it still holds."""
    report = stored_report(folder, balance)
    if report is None:
        report = index_report(folder, balance)
        write_json(folder / REPORT, report)
    return report


def mixture_estimate(account: Mapping[str, Any], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Whether the whole corpus has the tokens that a mixture needs, estimated from a sample (`pack limit=...`).

    Args:
        account: of the index's manifest: documents and tokens of each source.
        options: of the index's manifest: `total_tokens` and the length rules of the sources.

    Returns:
        For each source with a weight: `source`, `enough`, `available_tokens` and `needed_tokens` of the whole
        corpus, and `min_document_tokens`, the shortest document that counts. Empty for an index that is no
        sample, and without `total_tokens`: then nothing says how much is needed.
    """
    if options.get("total_tokens") is None or not any(counts.get("sample") for counts in account.values()):
        return []
    found = []
    for name, counts in account.items():
        share = counts[TRAIN]["share"]
        if share is None or not share["weight"]:
            continue
        available, needed = (share[key] / share["fraction"] for key in ("available_tokens", "target_tokens"))
        found.append(
            {
                "source": name,
                "enough": available >= needed,
                "available_tokens": round(available),
                "needed_tokens": round(needed),
                "min_document_tokens": options.get("lengths", {}).get(name, {}).get("min_document_tokens", 1),
            }
        )
    return found


def context_balance(
    windows: PackedWindows, ranks: list[int], sample_windows: int, arm: str, costs: CostModel | None = None
) -> list[dict[str, Any]]:
    """How evenly ranks that share a window work, by their number: means over windows spread over the split.

    Returns:
        For each number of ranks `work_balance` (pairs of the rank with most over the mean),
        `worst_work_balance` (of the worst window), `of_all_gather` (rows moved over all-gather's) and
        `time_of_ideal` (modelled time of attention over that of its computing, equally shared).
    """
    costs = costs or CostModel()
    numbers = np.unique(np.linspace(0, len(windows) - 1, min(sample_windows, len(windows))).astype(np.int64))
    layouts = [windows[number].layout(arm) for number in numbers.tolist()]
    found = []
    for count in ranks:
        figures = [
            plan_figures(plan_context(layout, count, costs=costs), costs, int(layout.piece_lengths.sum()))
            for layout in layouts
        ]
        values = {
            name: np.array([each[name] for each in figures], dtype=np.float64)
            for name in ("work_balance", "of_all_gather", "time_of_ideal")
        }
        means: dict[str, Any] = {name: float(value.mean()) for name, value in values.items()}
        worst = float(values["work_balance"].max())
        found.append({"ranks": count, "windows": len(layouts), **means, "worst_work_balance": worst})
    return found


def used_shares(used_rows: np.ndarray, window_tokens: int) -> list[int]:
    """Windows by the share of their rows that is used: from one of `USED_EDGES` to the next, and full ones."""
    edges = np.array([*USED_EDGES[:-1], 1.0, 2.0]) * window_tokens
    return np.histogram(used_rows, bins=edges)[0].tolist()


def _of_windows(windows: PackedWindows, balance: BalanceConfig, arm: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "used": used_shares(windows.used_rows(), windows.window_tokens),
        "context_parallel": context_balance(windows, balance.context_ranks, balance.sample_windows, arm),
    }
    if windows.split == TRAIN:
        per_step = balance.windows_per_step
        shape = StepShape(per_step, balance.data_ranks or per_step, balance.row_pairs)
        of_steps = efficiencies(windows.index_hash, windows.attention_work(), windows.window_tokens, shape)
        found["step_efficiency"] = {str(steps): value for steps, value in of_steps.items()}
    return found
