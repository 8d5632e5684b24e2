"""what sharing windows among ranks would move and cost, without them."""

from __future__ import annotations

import itertools

from omegaconf import MISSING

from anchorcontext.config.schema import SimulateConfig
from anchorcontext.console import Bars, table_console
from anchorcontext.console.simulation import result_table
from anchorcontext.models.planning import cost_model
from anchorcontext.simulation import simulate, write_simulation


def run(config: SimulateConfig) -> None:
    """Simulate everything asked for, print one table per mix, write the results.

    Raises:
        DataError: a pack index that cannot be read.
    """
    costs = cost_model(config.context_parallel)
    index = None if config.data.index == MISSING else config.data.index
    arm, max_gathered_rows = config.attention.arm, config.context_parallel.max_gathered_rows
    with Bars(one=True) as bars:
        simulation = simulate(
            costs,
            ranks=config.ranks,
            mixes=config.mixes,
            exchanges=config.exchanges,
            policies=config.policies,
            window_tokens=config.window_tokens,
            windows=config.windows,
            arm=arm,
            max_gathered_rows=max_gathered_rows,
            index=index,
            split=config.split,
            on_progress=bars,
        )
    console = table_console()
    for mix, lines in itertools.groupby(simulation.simulated, key=lambda line: line.mix):
        console.print(result_table(mix, list(lines)))
    for no in simulation.refused:
        console.print(f"no plan: {no.mix} on {no.ranks}, {no.exchange}, {no.policy}: {no.reason}", soft_wrap=True)
    folder = write_simulation(
        simulation, config.output, costs, arm=arm, max_gathered_rows=max_gathered_rows, index=index
    )
    console.print(f"written: {folder}/simulation.csv, .json and .png", soft_wrap=True)
