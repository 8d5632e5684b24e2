"""What context-parallel plans would move and cost, on any number of ranks.

Plans are made as training makes them, for windows of known length mixes and of a pack index; nothing
is trained and no process group is needed. Written: `simulation.csv` (one line per mix, number of ranks,
exchange and policy), `simulation.json` (the same, and what was simulated) and `simulation.png`.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anchorcontext import progress
from anchorcontext.context_parallel import EXCHANGES, CostModel, plan_context
from anchorcontext.context_parallel.figures import plan_figures
from anchorcontext.data.length_mixes import sample_window
from anchorcontext.data.windows import PackedWindows
from anchorcontext.layout import WindowLayout
from anchorcontext.progress import OnProgress

INDEX = "index"
"""The mix that is the pack index of the config."""


@dataclass(frozen=True)
class Simulated:
    """A policy and an exchange on some windows: means over them, unless noted; figures as in `plan_figures`."""

    mix: str
    ranks: int
    exchange: str
    policy: str
    windows: int
    window_tokens: int
    rows_moved: float
    of_lower_bound: float | None
    of_all_gather: float
    rows_gathered: float
    work_balance: float
    padding_rows: float
    time_of_ideal: float
    plan_milliseconds: float
    """Median time to make the plan, without its layout and one rank's stages."""
    layout_milliseconds: float
    stages_milliseconds: float


@dataclass(frozen=True)
class Refused:
    """What cannot be planned, and why."""

    mix: str
    ranks: int
    exchange: str
    policy: str
    reason: str


@dataclass(frozen=True)
class Simulation:
    """Every mix, number of ranks, exchange and policy that could be planned, and those that could not."""

    simulated: list[Simulated]
    refused: list[Refused]


def simulate(
    costs: CostModel,
    *,
    ranks: Sequence[int],
    mixes: Sequence[str] = (),
    exchanges: Sequence[str] = ("gather",),
    policies: Sequence[str] = ("auto",),
    window_tokens: int = 131_072,
    windows: int = 10,
    arm: str = "anchor",
    max_gathered_rows: int | None = None,
    index: str | Path | None = None,
    split: str = "train",
    on_progress: OnProgress = progress.ignore,
) -> Simulation:
    """Plan every combination of mix, number of ranks, exchange and policy.

    Exchanges that need contiguous rows have one policy, `contiguous`.

    Args:
        mixes: of `data.length_mixes`, or `one_document`.
        window_tokens: rows of a window of these mixes.
        windows: per mix; 0 takes all windows of the index.
        max_gathered_rows: the most rows that a rank may hold of others.
        index: a pack index, simulated as the mix `index`.
        split: of the index.
        on_progress: told the combinations that are done.

    Raises:
        DataError: a pack index that cannot be read.
    """
    simulated: list[Simulated] = []
    refused: list[Refused] = []
    makers: dict[str, Callable[[], list[Callable[[], WindowLayout]]]] = {}
    if index is not None:
        makers[INDEX] = partial(index_layouts, index, split, windows, arm)
    for mix in mixes:
        makers[mix] = partial(mix_layouts, mix, window_tokens, windows, arm)
    cases = [
        (count, exchange, policy)
        for count, exchange in itertools.product(ranks, exchanges)
        for policy in (("contiguous",) if EXCHANGES[exchange].contiguous_only else policies)
    ]
    total = len(makers) * len(cases)
    for mix, make in makers.items():
        make_layouts = make()
        for count, exchange, policy in cases:
            on_progress(f"{mix}: {exchange}, {policy} on {count}", len(simulated) + len(refused), total)
            case = (mix, count, exchange, policy)
            try:
                simulated.append(_simulate_case(case, make_layouts, costs, max_gathered_rows))
            except ValueError as error:
                refused.append(Refused(*case, str(error)))
    on_progress("simulated", total, total)
    return Simulation(simulated, refused)


def index_layouts(index: str | Path, split: str, windows: int, arm: str) -> list[Callable[[], WindowLayout]]:
    """Makers of the layouts of an index's first windows (making a layout is timed too)."""
    packed = PackedWindows(index, split)
    count = min(windows or len(packed), len(packed))
    return [partial(packed[number].layout, arm) for number in range(count)]


def mix_layouts(mix: str, window_tokens: int, windows: int, arm: str) -> list[Callable[[], WindowLayout]]:
    """Makers of the layouts of a length mix's windows."""
    count = 1 if mix == "one_document" else windows
    lengths = [sample_window(mix, window_tokens, number) for number in range(count)]
    return [partial(WindowLayout, pieces, arm=arm) for pieces in lengths]


def _simulate_case(
    case: tuple[str, int, str, str],
    make_layouts: Sequence[Callable[[], WindowLayout]],
    costs: CostModel,
    max_gathered_rows: int | None,
) -> Simulated:
    _, ranks, exchange, policy = case
    figures, times = [], []
    for make_layout in make_layouts:
        started = time.perf_counter()
        layout = make_layout()
        layout.digest  # noqa: B018  # what a layout computes once
        made = time.perf_counter()
        plan = plan_context(
            layout, ranks, exchange=exchange, policy=policy, costs=costs, max_gathered_rows=max_gathered_rows
        )
        planned = time.perf_counter()
        plan.stages(0)
        times.append((planned - made, made - started, time.perf_counter() - planned))
        figures.append(plan_figures(plan, costs, int(layout.piece_lengths.sum())))
    means: dict[str, Any] = {name: _mean([of_window[name] for of_window in figures]) for name in figures[0]}
    plan_time, layout_time, stages_time = (1e3 * np.median(times, axis=0)).tolist()
    return Simulated(
        *case,
        windows=len(figures),
        window_tokens=plan.num_rows,
        **means,
        plan_milliseconds=plan_time,
        layout_milliseconds=layout_time,
        stages_milliseconds=stages_time,
    )


def write_simulation(
    simulation: Simulation,
    output: str | Path,
    costs: CostModel,
    *,
    arm: str = "anchor",
    max_gathered_rows: int | None = None,
    index: str | None = None,
) -> Path:
    """Write the CSV, the JSON, and the plot drawn from the same lines; returns the folder."""
    from anchorcontext.plots import draw_simulation, save  # matplotlib costs a second

    folder = Path(output).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    lines = [dataclasses.asdict(line) for line in simulation.simulated]
    with (folder / "simulation.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [field.name for field in dataclasses.fields(Simulated)])
        table.writeheader()
        table.writerows(lines)
    record: dict[str, Any] = {
        "index": index,
        "arm": arm,
        "costs": dataclasses.asdict(costs),
        "max_gathered_rows": max_gathered_rows,
        "results": lines,
        "refused": [dataclasses.asdict(line) for line in simulation.refused],
    }
    (folder / "simulation.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if lines:
        save(draw_simulation(lines), folder / "simulation.png")
    return folder


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
