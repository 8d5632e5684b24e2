"""The trained model in Hugging Face format: `hf/step-000100`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from anchorcontext.models.export import export_model, sample_of
from anchorcontext.train.checkpoint import TrainState
from anchorcontext.train.engine import full_weights
from anchorcontext.train.run_folder import package_version, step_name
from anchorcontext.train.setup import Run

_SAMPLE_TOKENS = 64


def export(run: Run, state: TrainState) -> Path:
    """Gather the weights and write them, proven in a fresh process; nothing where that is done already. Collective."""
    folder = run.folder.exports / step_name(state.step)
    if run.ranks.on_main(folder.exists):
        return folder
    model = run.engine.module.model
    windows = run.batches.windows
    sample = sample_of(model, windows[0].input_ids[:_SAMPLE_TOKENS].to(run.ranks.device))
    weights = full_weights(run.engine, keep=run.ranks.is_main)

    def write() -> None:
        tokenizer = run.config.model.tokenizer
        export_model(folder, model, weights, tokenizer, windows.anchor_id, provenance(run, state), sample)

    run.ranks.on_main(write)
    return folder


def provenance(run: Run, state: TrainState) -> dict[str, Any]:
    """Where a model comes from."""
    config, windows = run.config, run.batches.windows
    return {
        "base_model": config.model.path,
        "base_weights": config.model.init,
        "arm": config.attention.arm,
        "window_tokens": windows.window_tokens,
        "rope_parameters": run.engine.module.model.config.rope_parameters,
        "rope_compute": config.rope.compute,
        "index_hash": windows.index_hash,
        "tokenizer_hash": windows.tokenizer_hash,
        "step": state.step,
        "tokens_seen": state.tokens,
        "windows_seen": state.data.windows_consumed,
        "precision": config.training.precision,
        "versions": {name: package_version(name) for name in ("anchorcontext", "torch", "transformers", "deepspeed")},
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of this project's checkout; None for an installed package, whatever repository it lies in."""
    root = Path(__file__).resolve().parents[2]
    command = ["git", "rev-parse", "--show-toplevel", "HEAD"]
    try:
        answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    lines = answer.stdout.splitlines()
    return lines[1] if answer.returncode == 0 and Path(lines[0]).resolve() == root else None
