"""The demo: what it starts from, the commands it runs, and how it judges what came out."""

from __future__ import annotations

import csv
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from anchorcontext.cli import COMMANDS
from anchorcontext.config.compose import read_config, typed

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo"
TEXTS = ["It is a truth universally acknowledged, that a single man", "def main():\n    return 0\n"] * 50


@pytest.fixture(scope="module")
def demo() -> Iterator[dict[str, ModuleType]]:
    """The demo's scripts, imported as Python does that runs one of them."""
    sys.path.insert(0, str(DEMO))
    names = ("commands", "prepare", "run")
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(DEMO))
    for name in names:
        del sys.modules[name]


@pytest.fixture(scope="module")
def model_folder(demo: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "model"
    demo["prepare"].save_model_folder(demo["prepare"].train_tokenizer(iter(TEXTS)), folder)
    return folder


def test_the_tokenizer_adds_bos_once_and_loses_nothing(model_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    text = "  Tabs\tand \u00e9 \U0001f600 and </s>, \r\nlines "
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id == 0
    assert tokenizer.bos_token_id not in ids[1:]
    assert tokenizer.eos_token_id == 1
    assert tokenizer.decode(ids[1:]) == text
    assert (
        json.loads((model_folder / "tokenizer_config.json").read_text())["tokenizer_class"] == "PreTrainedTokenizerFast"
    )


def test_the_model_is_about_a_million_parameters_at_the_real_vocabulary(
    demo: dict[str, ModuleType], model_folder: Path
) -> None:
    config = AutoConfig.from_pretrained(model_folder)
    assert config.max_position_embeddings == 128
    config.vocab_size = demo["prepare"].VOCAB_SIZE
    parameters = sum(each.numel() for each in AutoModelForCausalLM.from_config(config).parameters())
    assert 0.7e6 < parameters < 1.3e6


def test_the_text_is_there(demo: dict[str, ModuleType], tmp_path: Path) -> None:
    modules = demo["prepare"].copy_standard_library(tmp_path / "python")
    assert len(modules) > 100
    texts = demo["prepare"].texts(demo["prepare"].CLASSICS, modules)
    documents = [len(text) for text in texts]
    assert len(documents) == 201 + len(modules)
    assert 9_070_000 < sum(documents[:201]) < 9_090_000


def words_of(demo: dict[str, ModuleType]) -> list[list[str]]:
    demo["run"].window_to_show, kept = (lambda: 0), demo["run"].window_to_show
    try:
        return [list(each.words()) for each in demo["run"].demo_commands()]
    finally:
        demo["run"].window_to_show = kept


def test_every_command_of_ours_composes(demo: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    seen = set()
    for words in words_of(demo):
        if words[0] == "anchorcontext":
            command, arguments = words[1], words[2:]
        elif words[0] == "torchrun":
            command, arguments = words[4].removeprefix("anchorcontext."), words[5:]
        else:
            continue
        assert read_config(command, arguments) is not None
        seen.add(command)
    assert seen == {"pack", "inspect", "train", "evaluate", "report"} <= set(COMMANDS)


def experiment(name: str) -> Any:
    read = read_config("train", [f"experiment={name}"])
    assert read is not None
    return typed(read[0])


def test_the_experiments_are_what_the_demo_says(demo: dict[str, ModuleType]) -> None:
    run = demo["run"]
    base, extend, control = (experiment(f"demo_{name}") for name in ("base", "extend", "control"))
    assert extend.training.steps == run.EXTEND_STEPS
    assert base.data.window_tokens == control.data.window_tokens == 128
    assert extend.data.window_tokens == 4096
    assert base.data.store == extend.data.store
    exported = [f"{each.run.folder}/hf/step-{each.training.steps:06d}" for each in (base, extend, control)]
    assert extend.model.path == control.model.path == exported[0]
    (evaluation,) = (words for words in words_of(demo) if "anchorcontext.evaluate" in words)
    assert re.findall(r"runs/\S+/hf/[^\s,}]+", " ".join(evaluation)) == exported
    assert (extend.attention.arm, extend.context_parallel.size) == ("anchor", 2)
    assert (extend.deepspeed.zero_stage, extend.training.precision) == (1, "bf16")
    assert extend.rope.base > 1e4
    tokens = [
        each.training.steps * each.training.windows_per_step * each.data.window_tokens for each in (extend, control)
    ]
    assert tokens[0] == tokens[1], "the control must see as many extra tokens"
    assert (extend.optim, control.rope.base) == (control.optim, None)
    (kill_at_step,) = (each.kill_at_step for each in run.demo_commands() if each.kill_at_step)
    every = extend.training.save_every_steps
    assert kill_at_step % every, "some steps must be lost, and done again"
    assert every < kill_at_step < run.EXTEND_STEPS - every


def write_results(folder: Path, base: float = 5.0, extended: float = 4.0, control: float = 5.1, steps: int = 0) -> Path:
    (folder / "evaluation").mkdir(parents=True)
    (folder / "extend").mkdir()
    with (folder / "evaluation" / "by_position.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["model", "low", "high", "tokens", "loss", "perplexity", "standard_error"])
        for model, far in (("base", base), ("extended", extended), ("control", control)):
            for low, loss in ((0, 4.5), (64, 4.0), (128, 4.1), (2048, far)):
                lines.writerow([model, low, 2 * low or 64, 10, loss, 1, 0.1])
    written = "".join(json.dumps({"step": step}) + "\n" for step in range(1, steps + 1))
    (folder / "extend" / "metrics.jsonl").write_text(written)
    return folder


def test_a_demo_that_shows_nothing_fails(demo: dict[str, ModuleType], tmp_path: Path) -> None:
    check, steps = demo["run"].check, demo["run"].EXTEND_STEPS
    printed = "\n".join(check(write_results(tmp_path / "good", steps=steps)))
    assert "base      5.00" in printed
    assert "extended  4.00" in printed
    cases = [
        ({"base": 4.2}, "the base should fail"),
        ({"extended": 4.8}, "better than the base"),
        ({"control": 4.2}, "better than the control"),
        ({"steps": steps - 1}, "has not each step once"),
    ]
    for number, (changes, message) in enumerate(cases):
        with pytest.raises(AssertionError, match=message):
            check(write_results(tmp_path / str(number), **{"steps": steps, **changes}))


def runner_of(demo: dict[str, ModuleType], tmp_path: Path, *commands: Any) -> Any:
    return demo["commands"].Runner(commands, tmp_path, tmp_path / "logs", demo["run"].environment())


def test_commands_are_shown_run_and_logged(
    demo: dict[str, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = demo["commands"].Command
    script = "open('made', 'w').write(''); [print(f'step {step}/100 loss') for step in range(1, 101)]"
    runner = runner_of(
        demo,
        tmp_path,
        command("First", ["python", "-c", "print('hello [there]')"], 1),
        command("Second", lambda: ["python", "-c", script], 3, show=False),
    )
    assert runner.run_all() > 0
    printed = capsys.readouterr().out
    assert "hello [there]" in printed
    assert "$ python -c 'print('\"'\"'hello [there]'\"'\"')'" in printed
    assert "step 2 of 2" in printed
    assert [line.split("/")[0] for line in printed.splitlines() if line.startswith("step ")] == [
        "step 25",
        "step 50",
        "step 75",
        "step 100",
    ]
    assert (tmp_path / "made").exists()
    assert (tmp_path / "logs" / "02-python.log").read_text().count("\n") == 100


def test_a_failing_command_says_what_it_printed(demo: dict[str, ModuleType], tmp_path: Path) -> None:
    command = demo["commands"].Command
    runner = runner_of(
        demo, tmp_path, command("Fails", ["python", "-c", "print('why'); raise SystemExit(3)"], 1, show=False)
    )
    with pytest.raises(demo["commands"].CommandError, match=r"(?s)why.*ended with exit code 3"):
        runner.run_all()


def test_a_killed_run_leaves_no_process(demo: dict[str, ModuleType], tmp_path: Path) -> None:
    """A launcher's worker has a session of its own, so that no signal to the launcher's group reaches it."""
    command = demo["commands"].Command
    worker = "import time; time.sleep(600)"
    script = (
        "import subprocess, sys, time\n"
        f"worker = subprocess.Popen([sys.executable, '-c', {worker!r}], start_new_session=True)\n"
        "open('pid', 'w').write(str(worker.pid))\n"
        "print('step 1/4 x'); print('step 2/4 x', flush=True); time.sleep(60)\n"
    )
    runner = runner_of(demo, tmp_path, command("Is killed", ["python", "-c", script], 1, kill_at_step=2))
    runner.run_all()
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_the_whole_demo() -> None:
    """Over the leftovers of an earlier one."""
    leftover = ROOT / "runs" / "demo" / "leftover"
    leftover.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(DEMO / "run.py")], cwd=ROOT, capture_output=True, text=True, timeout=3600
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "extended to 4,096, killed once and resumed" in done.stdout
    assert (ROOT / "runs" / "demo" / "report" / "index.html").stat().st_size > 100_000
    assert not leftover.exists()
