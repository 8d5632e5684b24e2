"""Load an exported folder with transformers alone and compare it with what training computed.

Run as a script in a fresh process: `read_back.py FOLDER EXPECTED.safetensors`. It imports nothing of
this project, so it sees what other programs see, with any version of transformers from 4.57 on.
"""

import sys
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

SAMPLE = "Call me Ishmael. 1, 2, 42;\n\tdef f(x): return x  # naive cafe"
LOGIT_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05}
"""Relative L2, by the dtype of the weights: another attention kernel rounds in a different order."""


def main(folder: str, expected_file: str) -> list[str]:
    """What differs, one line each."""
    expected = load_file(expected_file)
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    model, report = loaded
    model.eval()
    problems = []
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[kind]:
            problems.append(f"{kind}: {sorted(report[kind])[:3]}")

    frequencies = next(buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq")).float()
    if frequencies.shape != expected["inv_freq"].shape or not torch.allclose(
        frequencies, expected["inv_freq"], 1e-6, 0
    ):
        problems.append(
            f"inverse frequencies: {frequencies[:3].tolist()}..., not {expected['inv_freq'][:3].tolist()}..."
        )

    with torch.no_grad():
        logits = model(input_ids=expected["ids"][None]).logits[0].float()
    error = ((logits - expected["logits"]).norm() / expected["logits"].norm()).item()
    if not error <= LOGIT_TOLERANCE[model.dtype]:
        problems.append(f"logits differ by {error:.3g} in relative L2")

    ids = AutoTokenizer.from_pretrained(folder)(SAMPLE).input_ids
    if ids != expected["tokenizer_ids"].tolist():
        problems.append(f"token ids: {ids[:5]}..., not {expected['tokenizer_ids'].tolist()[:5]}...")
    return problems


if __name__ == "__main__":
    found = main(*sys.argv[1:])
    print("\n".join(found))
    sys.exit(bool(found))
