"""The schema of every command's config: `NAME.py` here holds the `NameConfig` of the command `name`.

Hydra merges the YAML files of configs/ into these dataclasses, so an unknown key or a wrong type
fails before anything runs. The parts that commands share are in `config/groups/`.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from anchorcontext.config.groups.attention import AttentionConfig
from anchorcontext.config.groups.balance import BalanceConfig
from anchorcontext.config.groups.context_parallel import ContextParallelConfig, CostsConfig
from anchorcontext.config.groups.data import DataConfig
from anchorcontext.config.groups.deepspeed import DeepSpeedConfig
from anchorcontext.config.groups.logger import LoggerConfig
from anchorcontext.config.groups.model import ModelConfig
from anchorcontext.config.groups.optim import OptimConfig
from anchorcontext.config.groups.rope import RopeConfig
from anchorcontext.config.groups.source import SourceConfig
from anchorcontext.config.groups.training import OrderConfig, RunConfig, TrainingConfig
from anchorcontext.config.schema.evaluate import EvaluateConfig
from anchorcontext.config.schema.export_data import ExportDataConfig
from anchorcontext.config.schema.inspect import InspectConfig
from anchorcontext.config.schema.pack import PackConfig
from anchorcontext.config.schema.report import ReportConfig
from anchorcontext.config.schema.simulate import SimulateConfig
from anchorcontext.config.schema.train import TrainConfig

__all__ = [
    "SCHEMAS",
    "AttentionConfig",
    "BalanceConfig",
    "ContextParallelConfig",
    "CostsConfig",
    "DataConfig",
    "DeepSpeedConfig",
    "EvaluateConfig",
    "ExportDataConfig",
    "InspectConfig",
    "LoggerConfig",
    "ModelConfig",
    "OptimConfig",
    "OrderConfig",
    "PackConfig",
    "ReportConfig",
    "RopeConfig",
    "RunConfig",
    "SimulateConfig",
    "SourceConfig",
    "TrainConfig",
    "TrainingConfig",
]


def _schema(command: str) -> Any:
    name = "".join(word.capitalize() for word in command.split("_"))
    return getattr(importlib.import_module(f"{__name__}.{command}"), f"{name}Config")


SCHEMAS: dict[str, Any] = {module.name: _schema(module.name) for module in pkgutil.iter_modules(__path__)}
"""The config class of every command, found by the files of this folder."""
