"""From a config to a run that is ready for its next step: everything checked before training begins."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from transformers.utils import logging as transformers_logging

from anchorcontext.config.schema import TrainConfig
from anchorcontext.data.token_text import check_same_tokenizer
from anchorcontext.data.windows import PackedWindows
from anchorcontext.errors import ConfigError, Problem
from anchorcontext.models.build import DTYPES, checkpoint_layers, load_model, read_config
from anchorcontext.models.checks import check_heads, check_kernel, check_model
from anchorcontext.models.loss import CausalLMLoss
from anchorcontext.models.planning import check_sharing, cost_model
from anchorcontext.rope import check_frequencies, frequency_digest
from anchorcontext.train.batches import Batches
from anchorcontext.train.checkpoint import Checkpoints, TrainState, check_layout, seed_everything
from anchorcontext.train.engine import build_engine
from anchorcontext.train.ranks import Ranks
from anchorcontext.train.run_folder import RunFolder, fixed_settings


@dataclass(frozen=True)
class Run:
    """What the training loop works with."""

    config: TrainConfig
    ranks: Ranks
    folder: RunFolder
    batches: Batches
    engine: Any
    """A DeepSpeed engine around a `CausalLMLoss`."""
    checkpoints: Checkpoints
    state: TrainState
    """Where the run stands: after step 0, or after the checkpoint it goes on from."""
    warnings: list[str]


def start(config: TrainConfig, folder: RunFolder, ranks: Ranks) -> Run:
    """Make ready, on every rank; from the newest checkpoint where there is one.

    Raises:
        ConfigError, DataError: anything a user can put right, before the first step.
    """
    check_kernel(config.attention.kernel, ranks.device)
    warnings = folder.check(config, ranks)
    if not (ranks.is_main and sys.stderr.isatty()):
        transformers_logging.disable_progress_bar()
    seed_everything(config.training.seed, ranks.rank)
    windows = PackedWindows(config.data.index)
    ranks.check_same("the hash of the pack index", windows.index_hash)
    model = read_config(config.model.path).get_text_config()
    check_heads(config.attention.kernel, ranks.device, model, DTYPES[config.training.precision])
    costs = cost_model(config.context_parallel, model, DTYPES[config.training.precision].itemsize)
    check_sharing(config.context_parallel, model, windows.window_tokens * config.training.micro_batch_windows)
    batches = Batches(windows, config, ranks, costs)
    checkpoints = Checkpoints(folder.checkpoints, ranks, config.training.keep_checkpoints)
    checkpoint, found = checkpoints.choose(config.run.resume)
    state = _fresh_state(config, ranks, batches) if checkpoint is None else TrainState.read(checkpoint)
    if state.step > config.training.steps:
        fix = f"the run has taken {state.step} steps: give as many or more, or choose another run.name"
        raise ConfigError.of("training.steps", config.training.steps, fix)
    check_layout(state, config, ranks)
    state.data.check(batches.order)
    engine = _build(config, ranks, batches)
    if checkpoint is not None:
        checkpoints.load(engine, checkpoint)
    folder.begin(config, ranks)
    return Run(config, ranks, folder, batches, engine, checkpoints, state, warnings + found)


def _fresh_state(config: TrainConfig, ranks: Ranks, batches: Batches) -> TrainState:
    return TrainState(
        step=0,
        data=batches.state_after(0),
        tokens=0,
        world_size=ranks.world_size,
        settings=fixed_settings(config),
    )


def _build(config: TrainConfig, ranks: Ranks, batches: Batches) -> Any:
    """The engine, its model proven to compute what it should: on the CPU, for a GPU may not hold it whole."""
    model = load_model(
        config.model.path,
        init=config.model.init,
        rope=config.rope,
        dtype=DTYPES[config.training.precision],
        seed=config.training.seed,
        max_positions=config.data.window_tokens,
    )
    _check_data(config, batches.windows, model.config.vocab_size)
    check_model(model.train())
    if config.training.gradient_checkpointing:
        checkpoint_layers(model, keep_attention=config.training.keep_attention)
    engine = build_engine(CausalLMLoss(model, config.training.loss_chunk_rows), config, batches.micro_batches)
    check_frequencies(model)
    ranks.check_same("the digest of the rotary frequencies", frequency_digest(model))
    return engine


def _check_data(config: TrainConfig, windows: PackedWindows, vocab_size: int) -> None:
    """The pack index must fit the config, the tokenizer that is exported, and the model."""
    check_same_tokenizer(config.model.tokenizer, windows.tokenizer_hash)
    problems = []
    if windows.window_tokens != config.data.window_tokens:
        fix = f"{config.data.index} is packed at {windows.window_tokens}: run `anchorcontext pack` for this length"
        problems.append(Problem("data.window_tokens", config.data.window_tokens, fix))
    if windows.vocab_size > vocab_size:
        fix = f"its tokenizer has {windows.vocab_size} tokens, the model {vocab_size}: pack with the model's tokenizer"
        problems.append(Problem("data.index", config.data.index, fix))
    if problems:
        raise ConfigError(problems)
