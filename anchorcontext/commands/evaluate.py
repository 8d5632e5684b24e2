"""loss by position of checkpoints on held-out windows."""

from __future__ import annotations

from anchorcontext.config.schema import EvaluateConfig
from anchorcontext.console import Bars, table_console
from anchorcontext.console.positions import position_table
from anchorcontext.evaluate.losses import LossOptions
from anchorcontext.evaluate.positions import evaluate_positions


def run(config: EvaluateConfig) -> None:
    """Evaluate every checkpoint and print the table, on rank 0.

    Raises:
        ConfigError, DataError: data or checkpoints that do not fit.
    """
    options = LossOptions(
        config.attention.arm, config.attention.kernel, config.context_parallel, config.loss_chunk_rows
    )
    with Bars(one=True) as bars:
        evaluated = evaluate_positions(
            config.models,
            config.data.index,
            config.output,
            split=config.split,
            windows=config.windows,
            buckets=config.buckets,
            precision=config.precision,
            options=options,
            on_progress=bars,
        )
    if evaluated is not None:
        console = table_console()
        console.print(position_table(evaluated.losses, evaluated.title))
        if evaluated.note is not None:
            console.print(evaluated.note, soft_wrap=True)
        console.print(f"written: {evaluated.folder}", soft_wrap=True)
