"""The command `anchorcontext evaluate`, also `torchrun ... -m anchorcontext.evaluate`."""

from __future__ import annotations

from anchorcontext.config.app import hydra_command
from anchorcontext.config.schema import EvaluateConfig


def run(config: EvaluateConfig) -> None:
    from anchorcontext.evaluate.positions import evaluate  # imports transformers: not for --help

    evaluate(config)


main = hydra_command("evaluate", run)

if __name__ == "__main__":
    main()
