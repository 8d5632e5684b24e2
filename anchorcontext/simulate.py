"""`anchorcontext simulate`: what context-parallel plans would move and cost, on any number of ranks.

Plans are made as training makes them, for windows of known length mixes and of a pack index; nothing
is trained and no process group is needed. Written: `simulation.csv` (a line a mix, ranks, exchange and
policy), `simulation.json` (the same, and what was simulated) and `simulation.png`.
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
from omegaconf import MISSING
from rich.table import Table

from anchorcontext.config.app import hydra_command
from anchorcontext.config.schema import SimulateConfig
from anchorcontext.console import counted, plain_table, progress_bar, table_console
from anchorcontext.context_parallel import EXCHANGES, CostModel, plan_context
from anchorcontext.context_parallel.figures import plan_figures
from anchorcontext.data.length_mixes import sample_window
from anchorcontext.data.windows import PackedWindows
from anchorcontext.layout import WindowLayout
from anchorcontext.models.planning import cost_model

INDEX = "index"
"""The mix that is the pack index of the config."""


@dataclass(frozen=True)
class Simulated:
    """A policy and an exchange on some windows: means over them, but where said; figures as in `plan_figures`."""

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
    """Median time to make the plan, its layout and one rank's stages apart."""
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


def run(config: SimulateConfig) -> None:
    """Simulate everything asked for, print a table, write the results.

    Raises:
        DataError: a pack index that cannot be read.
    """
    costs = cost_model(config.context_parallel)
    simulated, refused = simulate(config, costs)
    console = table_console()
    for mix, lines in itertools.groupby(simulated, key=lambda line: line.mix):
        console.print(result_table(mix, list(lines)))
    for no in refused:
        console.print(f"no plan: {no.mix} on {no.ranks}, {no.exchange}, {no.policy}: {no.reason}", soft_wrap=True)
    output = Path(config.output).expanduser()
    write(output, config, costs, simulated, refused)
    console.print(f"written: {output}/simulation.csv, .json and .png", soft_wrap=True)


def simulate(config: SimulateConfig, costs: CostModel) -> tuple[list[Simulated], list[Refused]]:
    """Every mix, number of ranks, exchange and policy of the config that can be planned; and what can not.

    Exchanges that take neighbouring rows alone have one policy, `contiguous`.
    """
    simulated: list[Simulated] = []
    refused: list[Refused] = []
    mixes = ([INDEX] if config.data.index != MISSING else []) + list(config.mixes)
    cases = [
        (ranks, exchange, policy)
        for ranks, exchange in itertools.product(config.ranks, config.exchanges)
        for policy in (("contiguous",) if EXCHANGES[exchange].contiguous_only else config.policies)
    ]
    with progress_bar() as progress:
        task = progress.add_task("simulate", total=len(mixes) * len(cases))
        for mix in mixes:
            make_layouts = layouts_of(mix, config)
            for ranks, exchange, policy in cases:
                progress.update(task, description=f"{mix}: {exchange}, {policy} on {ranks}")
                case = (mix, ranks, exchange, policy)
                try:
                    simulated.append(
                        _simulate_case(case, make_layouts, costs, config.context_parallel.max_gathered_rows)
                    )
                except ValueError as error:
                    refused.append(Refused(*case, str(error)))
                progress.advance(task)
    return simulated, refused


def layouts_of(mix: str, config: SimulateConfig) -> list[Callable[[], WindowLayout]]:
    """Makers of the windows of a mix: making a layout is timed too."""
    if mix == INDEX:
        windows = PackedWindows(config.data.index, config.split)
        count = min(config.windows or len(windows), len(windows))
        return [partial(windows[number].layout, config.attention.arm) for number in range(count)]
    count = 1 if mix == "one_document" else config.windows
    lengths = [sample_window(mix, config.window_tokens, number) for number in range(count)]
    return [partial(WindowLayout, pieces, arm=config.attention.arm) for pieces in lengths]


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


def result_table(mix: str, lines: Sequence[Simulated]) -> Table:
    """A mix's results, the cheapest of each number of ranks in bold."""
    moved = ("moved", "of least", "of all-gather", "held")
    columns = ("ranks", "exchange", "policy", *moved, "work max/mean", "padding", "time/ideal", "plan ms")
    first = lines[0]
    title = f"{mix}: {counted(first.windows, 'window')} of {first.window_tokens:,} rows; moved and held: rows"
    table = plain_table(title, columns, left={"exchange", "policy"})
    for _, of_ranks in itertools.groupby(lines, key=lambda line: line.ranks):
        alike = list(of_ranks)
        cheapest = min(line.time_of_ideal for line in alike)
        for line in alike:
            table.add_row(
                str(line.ranks),
                line.exchange,
                line.policy,
                f"{line.rows_moved:,.0f}",
                "-" if line.of_lower_bound is None else f"{line.of_lower_bound:.2f}",
                f"{line.of_all_gather:.1%}",
                f"{line.rows_gathered:,.0f}",
                f"{line.work_balance:.3f}",
                f"{line.padding_rows:,.0f}",
                f"{line.time_of_ideal:.3f}",
                f"{line.plan_milliseconds:.1f}",
                style="bold" if line.time_of_ideal == cheapest else "",
                end_section=line is alike[-1],
            )
    return table


def write(
    output: Path, config: SimulateConfig, costs: CostModel, simulated: Sequence[Simulated], refused: Sequence[Refused]
) -> None:
    """Write the CSV, the JSON, and the plot that is drawn from the same lines."""
    from anchorcontext.plots import draw_simulation, save  # matplotlib costs a second

    output.mkdir(parents=True, exist_ok=True)
    lines = [dataclasses.asdict(line) for line in simulated]
    with (output / "simulation.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [field.name for field in dataclasses.fields(Simulated)])
        table.writeheader()
        table.writerows(lines)
    record: dict[str, Any] = {
        "index": None if config.data.index == MISSING else config.data.index,
        "arm": config.attention.arm,
        "costs": dataclasses.asdict(costs),
        "max_gathered_rows": config.context_parallel.max_gathered_rows,
        "results": lines,
        "refused": [dataclasses.asdict(line) for line in refused],
    }
    (output / "simulation.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if lines:
        save(draw_simulation(lines), output / "simulation.png")


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


main = hydra_command("simulate", run)

if __name__ == "__main__":
    main()
