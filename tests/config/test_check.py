"""The check lists every problem at once, by key, and is silent about a config that will do."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from anchorcontext.config.check import problems
from anchorcontext.config.compose import typed
from anchorcontext.config.fields import leaves
from anchorcontext.config.files import is_local
from anchorcontext.config.rules import Command
from anchorcontext.config.schema import (
    SCHEMAS,
    AttentionConfig,
    ContextParallelConfig,
    DataConfig,
    EvaluateConfig,
    ExportDataConfig,
    InspectConfig,
    PackConfig,
    ReportConfig,
    SimulateConfig,
    SourceConfig,
    TrainConfig,
)


def write_index(folder: Path, **manifest: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"window_tokens": 4096, "end_of_document": "eos"} | manifest))
    return folder


def write_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def good(tmp_path: Path) -> TrainConfig:
    """A train config without a problem."""
    config = TrainConfig()
    config.model.path = config.model.tokenizer = str(write_model(tmp_path / "base"))
    config.data.index = str(write_index(tmp_path / "index"))
    config.data.window_tokens = 4096
    config.attention.arm = "anchor"
    config.optim.lr = 1e-3
    config.training.steps = 10
    config.training.windows_per_step = 4
    config.run.name = "test"
    config.run.folder = str(tmp_path / "run")
    return config


def keys(config: Any, world_size: int = 1, gpu: bool = False) -> list[str]:
    return [problem.key for problem in problems(config, world_size=world_size, has_gpu=lambda: gpu)]


def test_a_good_config_has_no_problem(good: TrainConfig) -> None:
    assert keys(good) == []
    assert keys(good, world_size=4) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.init", "scratch"),
        ("attention.arm", "ancor"),
        ("attention.kernel", "flahs"),
        ("context_parallel.exchange", "scatter"),
        ("context_parallel.policy", "zig_zag"),
        ("training.precision", "fp8"),
        ("optim.schedule", "exponential"),
        ("data.end_of_document", "bos"),
        ("rope.compute", "fp16"),
        ("logger.name", "tensorboard"),
        ("deepspeed.offload_optimizer", "nvme"),
        ("optim.lr", 0.0),
        ("optim.lr", float("nan")),
        ("optim.lr", float("inf")),
        ("optim.weight_decay", -0.1),
        ("training.seed", -1),
        ("training.seed", 2**32),  # more than numpy's generator takes
        ("optim.betas", [0.9]),
        ("optim.betas", [0.9, 1.0]),
        ("optim.warmup_steps", 10),
        ("rope.base", 1.0),
        ("training.steps", 0),
        ("training.loss_chunk_rows", 0),
        ("training.keep_checkpoints", 0),
        ("data.window_tokens", 1),
        ("data.held_out_fraction", 1.0),
        ("deepspeed.zero_stage", 4),
        ("deepspeed.zero_stage", 0),  # with bf16
        ("deepspeed.offload_parameters", "cpu"),  # with stage 1
        ("context_parallel.size", 3),  # of 4 ranks
        ("context_parallel.size", 0),
        ("training.windows_per_step", 6),  # over 4 data-parallel ranks
        ("training.micro_batch_windows", 3),
        ("run.resume", "allways"),
        ("model.path", "./nowhere"),
        ("model.tokenizer", "./nowhere"),
        ("data.index", "./nowhere"),
        ("model.path", "???"),
        ("run.name", "???"),
        ("run.name", ""),
        ("run.folder", ""),  # which would be the working directory
        ("model.tokenizer", ""),
    ],
)
def test_one_bad_value_is_named_with_its_key(good: TrainConfig, key: str, value: Any) -> None:
    group, name = key.split(".")
    setattr(getattr(good, group), name, value)
    found = problems(good, world_size=4, has_gpu=lambda: True)
    at_fault = {"training.micro_batch_windows": "training.windows_per_step"}.get(key, key)
    assert at_fault in [problem.key for problem in found]
    assert len(found) <= 2, found
    assert all(problem.fix for problem in found)


def test_all_problems_come_together(good: TrainConfig) -> None:
    good.attention.arm = "ancor"
    good.deepspeed.zero_stage = 0
    good.deepspeed.offload_parameters = "cpu"
    good.optim.lr = -1.0
    good.run.name = "???"
    good.data.index = "/nowhere/index"
    assert set(keys(good, world_size=3)) == {
        "attention.arm",
        "deepspeed.zero_stage",
        "deepspeed.offload_parameters",
        "optim.lr",
        "run.name",
        "data.index",
        "training.windows_per_step",
    }


def test_offload_needs_a_gpu_and_asks_only_where_it_matters(good: TrainConfig) -> None:
    def never() -> bool:
        raise AssertionError("asked without need")

    assert problems(good, has_gpu=never) == []
    good.deepspeed.zero_stage = 3
    good.deepspeed.offload_parameters = good.deepspeed.offload_optimizer = "cpu"
    assert keys(good, gpu=True) == []
    assert keys(good, gpu=False) == ["deepspeed.offload_optimizer", "deepspeed.offload_parameters"]


@pytest.mark.parametrize(
    ("kernel", "gpu", "precision", "is_refused"),
    [
        ("auto", False, "bf16", False),
        ("cpu", False, "float32", False),
        ("cpu", True, "bf16", True),
        ("flash", True, "bf16", False),
        ("flash", False, "bf16", True),
        ("flash3", True, "float32", True),
        ("flex", True, "float32", False),
        ("flex", False, "bf16", True),
        ("math", False, "float32", False),
    ],
)
def test_a_kernel_the_device_lacks(good: TrainConfig, kernel: str, gpu: bool, precision: str, is_refused: bool) -> None:
    good.attention.kernel, good.training.precision = kernel, precision
    assert keys(good, gpu=gpu) == ["attention.kernel"] * is_refused


def test_ring_flash_attn_needs_a_gpu(good: TrainConfig) -> None:
    good.context_parallel.exchange = "ring_flash_attn"
    assert keys(good) == []  # one rank exchanges nothing
    good.context_parallel.size = 2
    assert keys(good, world_size=2) == ["context_parallel.exchange"]
    assert keys(good, world_size=2, gpu=True) == []


def test_keep_attention_needs_recomputation(good: TrainConfig) -> None:
    good.training.keep_attention = True
    assert keys(good) == []
    good.training.gradient_checkpointing = False
    assert keys(good) == ["training.keep_attention"]


def test_float32_may_use_stage_0(good: TrainConfig) -> None:
    good.deepspeed.zero_stage = 0
    good.training.precision = "float32"
    assert keys(good) == []


def test_global_batch_counts_replicas_and_micro_batches(good: TrainConfig) -> None:
    good.context_parallel.size = 2
    good.training.micro_batch_windows = 2
    assert keys(good, world_size=4) == []  # 2 replicas x 2 windows
    good.training.windows_per_step = 6
    (problem,) = problems(good, world_size=4)
    assert "multiple of 4" in problem.fix


def test_index_of_another_window_length_names_both_and_the_command(good: TrainConfig) -> None:
    good.data.window_tokens = 8192
    good.data.end_of_document = "none"
    found = {problem.key: problem for problem in problems(good)}
    assert set(found) == {"data.window_tokens", "data.end_of_document"}
    assert "window_tokens=4096" in found["data.window_tokens"].fix
    assert "anchorcontext pack" in found["data.window_tokens"].fix


def test_missing_index_names_the_pack_command(good: TrainConfig, tmp_path: Path) -> None:
    good.data.index = str(tmp_path / "other")
    (problem,) = problems(good)
    assert f"anchorcontext pack data.index={tmp_path / 'other'} data.window_tokens=4096" in problem.fix


def test_broken_manifest_is_said_to_be_broken(good: TrainConfig) -> None:
    (Path(good.data.index) / "manifest.json").write_text("{")
    (problem,) = problems(good)
    assert "cannot be read" in problem.fix


def test_model_folder_without_config(good: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    good.model.path = good.model.tokenizer = str(tmp_path / "empty")
    assert {problem.key: problem.fix.partition(":")[0] for problem in problems(good)} == {
        "model.path": "has no config.json",
        "model.tokenizer": "has no tokenizer.json",
    }


def test_model_folder_without_weights(good: TrainConfig) -> None:
    (Path(good.model.path) / "model.safetensors").unlink()
    (problem,) = problems(good)
    assert (problem.key, problem.fix.partition(" (")[0]) == ("model.path", "has no weights")
    good.model.init = "random"
    assert keys(good) == []


def test_resume_takes_the_path_of_a_checkpoint(good: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "step-000100").mkdir()
    good.run.resume = str(tmp_path / "step-000100")
    assert keys(good) == []


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("gpt2", False),
        ("meta-llama/Llama-2-7b-hf", False),
        ("hf://data/set", False),
        ("./base", True),
        ("/data/base", True),
        ("~/base", True),
        ("runs/base/hf/step-000100", True),
        ("present/base", True),  # a folder `present` is here, so `present/base` is no hub name
        ("present", True),
    ],
)
def test_hub_names_are_told_from_paths(path: str, local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "present").mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_local(path) == local


def test_pack(tmp_path: Path) -> None:
    config = PackConfig(data=DataConfig(tokenizer="gpt2", store="s", index="i", window_tokens=128))
    assert keys(config) == ["data.sources"]
    config.data.sources = {"text": SourceConfig(path=str(tmp_path / "*.txt")), "more": SourceConfig(path=str(tmp_path))}
    assert keys(config) == []
    config.data.sources["text"] = SourceConfig(path=str(tmp_path / "gone"), format="xml")
    config.data.sources["more"] = SourceConfig()
    config.data.tokenizer = "./gone"
    config.workers = -1
    assert sorted(keys(config)) == [
        "data.sources.more.path",
        "data.sources.text.format",
        "data.sources.text.path",
        "data.tokenizer",
        "workers",
    ]


def test_inspect_needs_the_index_alone(tmp_path: Path) -> None:
    config = InspectConfig(data=DataConfig(index=str(write_index(tmp_path / "index"))))
    config.attention.arm = "document"
    assert keys(config) == []
    config.picture, config.split, config.window = "mask.bmp", "test", -1
    assert sorted(keys(config)) == ["picture", "split", "window"]


def test_inspect_without_an_index_verifies_stores() -> None:
    config = InspectConfig()
    config.attention.arm = "anchor"
    assert keys(config) == ["data.index"]
    config.verify = True
    assert keys(config) == ["data.index"]
    config.data.store = "store"
    assert keys(config) == []


def test_evaluate(tmp_path: Path) -> None:
    config = EvaluateConfig(data=DataConfig(index=str(write_index(tmp_path / "index"))), output=str(tmp_path / "out"))
    config.attention.arm = "anchor"
    assert keys(config) == ["models"]
    config.models = {"base": str(write_model(tmp_path / "base"))}
    assert keys(config, world_size=2) == []
    config.models["gone"] = str(tmp_path / "gone")
    config.buckets = [1024, 512]
    config.context_parallel.size = 2
    assert sorted(keys(config, world_size=3)) == ["buckets", "context_parallel.size", "models.gone"]


def test_simulate(tmp_path: Path) -> None:
    config = SimulateConfig(mixes=["web"], ranks=[8], policies=["auto"], exchanges=["gather"], output="out")
    config.attention.arm = "anchor"
    assert keys(config) == []
    config.mixes, config.ranks, config.policies, config.exchanges = ["books"], [8, 0], ["auto", "stripes"], []
    config.windows, config.context_parallel.costs.bytes_per_second = 0, 0.0
    assert sorted(keys(config)) == [
        "context_parallel.costs.bytes_per_second",
        "exchanges",
        "mixes",
        "policies",
        "ranks",
        "windows",
    ]
    config = SimulateConfig(ranks=[8], policies=["auto"], exchanges=["gather"], output="out")
    config.attention.arm = "anchor"
    assert keys(config) == ["mixes"]
    config.data.index = str(tmp_path)
    assert keys(config) == ["data.index"]
    config.data.index = str(write_index(tmp_path / "index"))
    assert keys(config) == []


def test_heads_are_exchanged_for_neighbouring_rows_alone(good: TrainConfig) -> None:
    good.context_parallel.exchange, good.context_parallel.policy = "ulysses", "zigzag"
    assert keys(good) == ["context_parallel.policy"]
    good.context_parallel.policy = "auto"
    assert keys(good) == []


def test_report(tmp_path: Path) -> None:
    config = ReportConfig(output=str(tmp_path / "report"))
    assert keys(config) == ["runs"]
    config.runs, config.pictures = {"run": str(tmp_path)}, {"mask": str(tmp_path / "gone.png")}
    assert keys(config) == ["pictures.mask"]


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_an_empty_config_names_what_is_missing_and_no_more(schema: type) -> None:
    config = OmegaConf.structured(schema())
    OmegaConf.resolve(config)
    for problem in problems(typed(config)):
        assert problem.value in ("???", "{}", "[]")
        assert problem.key not in ("model.tokenizer", "run.folder")  # they follow model.path and run.name


def test_words_are_those_of_the_code() -> None:
    from anchorcontext.context_parallel import EXCHANGES, POLICIES
    from anchorcontext.data.length_mixes import MIXES
    from anchorcontext.layout import ARMS

    words = {
        (schema, field.name): field.metadata.get("words")
        for schema in (AttentionConfig, ContextParallelConfig, SimulateConfig)
        for field in dataclasses.fields(schema)
    }
    assert words[AttentionConfig, "arm"] == ARMS
    assert words[ContextParallelConfig, "exchange"] == words[SimulateConfig, "exchanges"] == tuple(EXCHANGES)
    assert words[ContextParallelConfig, "policy"] == words[SimulateConfig, "policies"] == ("auto", *POLICIES)
    assert words[SimulateConfig, "mixes"] == tuple(MIXES)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_keys_that_a_command_does_not_read_exist(schema: type[Command]) -> None:
    assert schema.unread <= {key for key, _ in leaves(schema())}


@pytest.mark.parametrize("name", ["out*x", "out?", "out[1]", "[a]/out"])
def test_exports_go_where_datasets_reads_them(good: TrainConfig, tmp_path: Path, name: str) -> None:
    config = ExportDataConfig(data=good.data, output=str(tmp_path / "plain"))
    assert keys(config) == []
    config.output = str(tmp_path / name)
    assert keys(config) == ["output"]
