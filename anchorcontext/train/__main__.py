"""The command `anchorcontext train`, also `torchrun ... -m anchorcontext.train`."""

from __future__ import annotations

from anchorcontext.config.app import hydra_command
from anchorcontext.config.schema import TrainConfig


def run(config: TrainConfig) -> None:
    from anchorcontext.train.loop import train  # imports DeepSpeed: not for --help, nor for a wrong config

    train(config)


main = hydra_command("train", run)

if __name__ == "__main__":
    main()
