"""Composing: typed values, unknown keys, several mistakes in one error, and nothing written."""

import re
from contextlib import suppress
from pathlib import Path

import pytest

from anchorcontext.config.compose import compose, read_config, typed
from anchorcontext.config.schema import SCHEMAS, TrainConfig
from anchorcontext.errors import ConfigError


def problems_of(command: str, *arguments: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        compose(command, arguments)
    return {problem.key: problem.fix for problem in caught.value.problems}


def train_config(*arguments: str) -> TrainConfig:
    read = read_config("train", arguments)
    assert read is not None
    return typed(read[0])


def test_numbers_arrive_as_numbers() -> None:
    config = train_config("rope.base=5e6", "optim.lr=2e-5", "optim.betas=[9e-1,0.95]", "training.steps=2000")
    assert (config.rope.base, config.optim.lr, config.optim.betas) == (5_000_000.0, 2e-5, [0.9, 0.95])
    assert all(type(value) is float for value in (config.rope.base, config.optim.lr, *config.optim.betas))
    assert type(config.training.steps) is int
    assert type(train_config("rope=64k").rope.base) is float
    assert type(train_config("rope.base=1000000").rope.base) is float


def test_one_word_changes_the_arm_of_an_experiment() -> None:
    anchor, document = (
        train_config("experiment=llama2_7b_64k"),
        train_config("experiment=llama2_7b_64k", "attention=document"),
    )
    assert (anchor.attention.arm, document.attention.arm) == ("anchor", "document")
    assert anchor.run.folder != document.run.folder
    document.attention, document.run = anchor.attention, anchor.run
    assert anchor == document


def test_missing_values_do_not_stop_composing() -> None:
    config = train_config()
    assert isinstance(config, TrainConfig)
    assert (config.model.path, config.model.tokenizer, config.run.folder) == ("???", "???", "???")


MISTAKES = {
    "training.stpes=3": ("training.stpes", "training.steps"),
    "lr=1e-5": ("lr", "optim.lr"),
    "atention=anchor": ("atention", "attention"),
    "+training.extra=1": ("training.extra", "no such key"),
    "+nothing_like_it=1": ("nothing_like_it", "--help"),
    "attention=ancor": ("attention", "anchor, document"),
    "experiment=nope": ("experiment", "llama2_7b_64k"),
    "training.steps=many": ("training.steps", "whole number"),
    "training.steps=2e3": ("training.steps", "whole number"),
    "optim.lr=fast": ("optim.lr", "must be a number"),
    "optim.betas=0.9": ("optim.betas", "list"),
    "data.sources.mine.path=x": ("data.sources.mine.path", "'+data.sources={mine: {path: x}}'"),
    "model.path=a=b": ("model.path", "quote"),
    "model.path": ("model.path", "cannot be read"),
    "rope.base=5e6,6e6": ("rope.base", "Ambiguous"),
    "~training.seed": ("training.seed", "set another value"),
    "deepspeed=null": ("deepspeed", "GROUP=NAME"),
    "logger=5": ("logger", "GROUP=NAME"),
    "=3": ("", "GROUP=NAME"),
}
"""Overrides that do not apply, the key each is reported under, and what the report must hold."""


def test_every_override_that_does_not_apply_is_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        compose("train", [*MISTAKES])
    for override, (key, hint) in MISTAKES.items():
        assert any(problem.key == key and hint in problem.fix for problem in caught.value.problems), override
    keys = [problem.key for problem in caught.value.problems]
    assert {"optim.lr", "data.index", "run.name"} <= set(keys), "what the check finds in the rest comes with them"


def test_a_source_can_be_added_on_the_command_line() -> None:
    read = read_config("pack", ["+data.sources={mine: {path: corpus, format: text}}"])
    assert read is not None
    source = typed(read[0]).data.sources["mine"]
    assert (source.path, source.format, source.text_field) == ("corpus", "text", "text")


def test_a_mistake_in_a_yaml_file_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\ntraining:\n  stepz: 3\n")
    found = problems_of("train", "--config-dir", str(tmp_path), "experiment=mine")
    assert "stepz" in found["experiment"]
    (tmp_path / "experiment" / "mine.yaml").write_text("training: [\n")
    assert "mine.yaml" in problems_of("train", "--config-dir", str(tmp_path), "experiment=mine")["config"]


def test_experiments_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /attention: full\ntraining:\n  steps: 7\n"
    )
    config = train_config("--config-dir", str(tmp_path), "experiment=mine")
    assert (config.attention.arm, config.training.steps) == ("full", 7)


def test_the_experiment_in_the_docs(tmp_path: Path) -> None:
    document = (Path(__file__).resolve().parents[2] / "docs" / "config.md").read_text()
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "books_64k.yaml").write_text(re.findall(r"```yaml\n(.*?)```", document, re.S)[0])
    config = train_config("--config-dir", str(tmp_path), "experiment=books_64k")
    assert (config.run.name, config.data.window_tokens, config.rope.base) == ("books_64k_anchor", 65_536, 5e6)


def test_an_experiment_without_its_first_line_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("defaults:\n  - override /attention: full\n")
    assert "# @package _global_" in problems_of("train", "--config-dir", str(tmp_path), "experiment=mine")["experiment"]


def test_cfg_shows_no_config_that_lacks_what_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert "training.stpes" in problems_of("train", "--cfg", "job", "training.stpes=3")
    assert capsys.readouterr().out == ""


def test_an_interpolation_to_nothing(tmp_path: Path) -> None:
    assert "nowhere" in problems_of("train", "run.name=${nowhere}")["config"]


def test_a_key_that_is_given_twice() -> None:
    with pytest.raises(ConfigError) as caught:
        compose("train", ["experiment=demo_base", "experiment=nope", "training.steps=1", "training.steps=1x"])
    refused = [str(problem.value) for problem in caught.value.problems]
    assert {"nope", "1x"} <= set(refused)
    assert not {"demo_base", "1"} & set(refused)


def test_sweeps_are_refused() -> None:
    assert "--multirun" in problems_of("train", "--multirun", "optim.lr=1e-3,1e-4")


@pytest.mark.parametrize(
    "given", ["--config-name=evaluate", "-cn", "--config-path=x", "hydra.run.dir=x", "hydra/launcher=basic"]
)
def test_what_no_command_would_heed_is_refused(given: str) -> None:
    assert list(problems_of("train", given)) == [given.partition("=")[0]]


@pytest.mark.parametrize("command", SCHEMAS)
def test_nothing_is_written(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    read_config(command, [])
    with suppress(ConfigError):  # most commands lack something; simulate has all it needs
        compose(command, [])
    assert list(tmp_path.iterdir()) == []


def test_world_size_comes_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert "the 3 ranks" in problems_of("train", "context_parallel=cp2")["context_parallel.size"]


@pytest.mark.parametrize(
    ("command", "override", "fix"),
    [
        ("pack", "attention=anchor", "pack has no group attention; its groups are data, mixture"),
        ("report", "data=demo_128", "report has no groups"),
    ],
)
def test_a_group_of_another_command(command: str, override: str, fix: str) -> None:
    assert problems_of(command, override)[override.partition("=")[0]] == fix


def test_what_a_missing_file_would_have_given_is_not_asked_for() -> None:
    assert list(problems_of("pack", "data=nope")) == ["data"]


def test_a_config_folder_that_is_not_there(tmp_path: Path) -> None:
    assert problems_of("pack", "--config-dir", str(tmp_path / "none")) == {"--config-dir": "no such folder"}


@pytest.mark.parametrize("override", ["data.mixture={a: 1}", "data.mixture.a=1"])
def test_an_entry_of_a_dictionary_needs_a_plus(override: str) -> None:
    key = override.partition("=")[0]
    assert problems_of("pack", override)[key] == f"entries of a dictionary are added with +: '+{override}'"


def test_values_of_the_wrong_type_are_told_in_words(tmp_path: Path) -> None:
    given = [f"+data.sources={{s: {{path: {tmp_path}}}}}", f"data.tokenizer={tmp_path}", "data.store=st"]
    (tmp_path / "tokenizer.json").touch()
    found = problems_of(
        "pack",
        *given,
        "data.window_tokens=null",
        "data.index.x=1",
        "data.sources.s.strict=often",
        "data.sources.s.no=1",
    )
    assert found["data.window_tokens"] == "must not be null: give a value, or leave it out"
    assert found["data.index.x"] == "no such key: data.index is a single value"
    assert found["data.sources.s.strict"] == "must be true or false"
    assert found["data.sources.s.no"].startswith("no such key")
    given += ["data.window_tokens=64", "data.index=ix"]
    assert problems_of("pack", *given, "+data.mixture={s: [1]}", "+data.sources.s.where={lang: [en, de]}") == {
        "data.mixture.s": "must be a single value, not a list or dictionary",
        "data.sources.s.where.lang": "must be a single value, not a list or dictionary",
    }


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("+data.sources.new={path: x}", "added as a whole: '+data.sources={new: {path: x}}'"),
        ("+data.sources.new=x", "added as a whole: '+data.sources={new: {path: x}}'"),
        ("+data.sources={n: x}", "data.sources.n: must be a dictionary"),
        ("+data.sources={n: [x]}", "has a list where a dictionary belongs"),
        ("+data.sources={n: {path: x, paht: x}}", "no such key: data.sources.n.paht"),
        ("+data.sources={n: {path: [x]}}", "data.sources.n.path: must be a single value"),
        ("+data.sources={n: {path: x, max_bad_fraction: x}}", "data.sources.n.max_bad_fraction: must be a number"),
        ("+data.sources={n: {path: x, min_document_tokens: x}}", "data.sources.n.min_document_tokens: must be a whole"),
        ("balance=3", "balance=3: must be a dictionary"),
        ("balance.context_ranks=3", "must be a list"),
        ("balance.context_ranks=[null]", "balance.context_ranks[0]: must not be null"),
        ("balance.row_pairs=99999999999999999999999", "at most 2,147,483,647"),
        ("workers=99999999999999999999999", "at most 2,147,483,647"),
    ],
)
def test_values_of_a_wrong_type_are_told_in_words(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        compose("pack", [override])
    assert words in str(error.value)
    assert "subclass" not in str(error.value)
