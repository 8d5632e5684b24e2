"""The pack command: what it prints, makes, reuses and refuses."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from anchorcontext import cli
from anchorcontext.commands import pack
from anchorcontext.config.compose import config_folder
from anchorcontext.config.schema import DataConfig, PackConfig, SourceConfig
from anchorcontext.data.statistics import index_report
from anchorcontext.data.windows import PackedWindows
from anchorcontext.packing import _BytesRead, folder_of
from data_prep.errors import DataError
from tests.data_prep.corpus import byte_tokenizer, folder_bytes, write_jsonl


@pytest.fixture
def config(tmp_path: Path) -> PackConfig:
    books = [{"text": "word " * count, "kind": "book"} for count in range(1, 40)]
    write_jsonl(tmp_path / "books.jsonl.gz", [*books, b"{bad", {"text": "x", "kind": "letter"}])
    (tmp_path / "code" / "deep").mkdir(parents=True)
    for number in range(30):
        (tmp_path / "code" / "deep" / f"{number}.py").write_text(f"x = {number}\n" * number)
    return PackConfig(
        data=DataConfig(
            sources={
                "code": SourceConfig(path=str(tmp_path / "code"), pattern="*.py"),
                "books": SourceConfig(path=str(tmp_path / "books.jsonl.gz"), where={"kind": "book"}),
            },
            tokenizer=str(byte_tokenizer(tmp_path / "tokenizer")),
            store=str(tmp_path / "store"),
            index=str(tmp_path / "index"),
            window_tokens=128,
            held_out_fraction=0.1,
        ),
        workers=1,
        page=False,
    )


def _lines(captured: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in captured.readouterr().out.splitlines()]


def test_packs_and_says_what_became_of_every_document(config: PackConfig, capsys: pytest.CaptureFixture[str]) -> None:
    pack.run(config)
    lines = _lines(capsys)
    train, held_out = (PackedWindows(config.data.index, split) for split in ("train", "held_out"))
    assert train.source_names == ["books", "code"]
    for source, documents, skipped in (("books", 39, 2), ("code", 29, 1)):
        account = train.manifest["account"][source]
        assert account["documents"] == documents
        row = [source, documents, skipped, account["tokens"], account["train"]["tokens"], account["held_out"]["tokens"]]
        assert [value if isinstance(value, str) else f"{value:,}" for value in row] in lines
    for windows in (train, held_out):
        counts = windows.manifest["splits"][windows.split]
        row = [counts[name] for name in ("documents", "cut_documents", "tokens", "padding_rows")]
        density = f"{counts['density']:.3%}"
        work = f"{windows.attention_work().mean() / windows.window_tokens**2:.1%}"
        assert [windows.split, f"{len(windows):,}", density, *(f"{value:,}" for value in row), work] in lines
    text = "\n".join(" ".join(line) for line in lines)
    assert (
        f"skipped in books: 1 bad JSON (listed in {config.data.store}/books/skipped.jsonl), 1 left out by where" in text
    )
    assert f"skipped in code: 1 empty document (listed in {config.data.store}/code/skipped.jsonl)" in text


def test_bars_show_a_source_each_and_come_to_their_end(
    config: PackConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take a pipe for a terminal
    monkeypatch.setenv("COLUMNS", "120")
    pack.run(config)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    for source in ("books", "code"):
        (last,) = re.findall(rf"tokenizing {source} .*?([\d.]+)/([\d.]+) \w+ .* left 0:00:00", shown)[-1:]
        assert last[0] == last[1]
    pack.run(config)
    assert "tokenizing" not in capsys.readouterr().err


def test_a_source_with_only_an_empty_file_left_has_no_bar() -> None:
    told: list[tuple[str, int, int]] = []
    counts = _BytesRead(lambda *said: told.append(said))
    counts.begin("books", 0)
    counts.advance("books", 0)
    assert told == []


def test_again_finds_everything_done(config: PackConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack.run(config)
    before = {name: folder_bytes(tmp_path / name) for name in ("store", "index")}
    capsys.readouterr()
    pack.run(config)
    text = capsys.readouterr().out
    assert text.count("reused (same files, tokenizer and options)") == 2
    assert "found as it should be, nothing to do" in text
    assert {name: folder_bytes(tmp_path / name) for name in ("store", "index")} == before


def test_what_a_killed_pack_left_of_its_report_goes(config: PackConfig) -> None:
    pack.run(config)
    index = Path(config.data.index)
    (index / "report.json").rename(index / "report.json.999999.partial")
    pack.run(config)
    assert (index / "report.json").is_file()
    assert not list(index.glob("*.partial"))


def test_another_length_reuses_the_stores(config: PackConfig, capsys: pytest.CaptureFixture[str]) -> None:
    pack.run(config)
    capsys.readouterr()
    first = config.data.index
    config.data.index, config.data.window_tokens = f"{first}-64", 64
    pack.run(config)
    assert capsys.readouterr().out.count("reused (same") == 2
    assert (PackedWindows(first).window_tokens, PackedWindows(config.data.index).window_tokens) == (128, 64)


def test_an_index_of_other_options_is_replaced_only_when_asked(config: PackConfig) -> None:
    pack.run(config)
    config.data.window_tokens = 64
    with pytest.raises(DataError, match="window_tokens: packed with 128, now 64"):
        pack.run(config)
    config.overwrite = True
    pack.run(config)
    assert PackedWindows(config.data.index).window_tokens == 64


@pytest.mark.parametrize("pattern", ["*", "*.json", "*.html"])
def test_an_index_inside_a_source_is_refused_before_anything_is_made(
    config: PackConfig, tmp_path: Path, pattern: str
) -> None:
    config.data.sources["code"].pattern = pattern
    config.data.index = str(tmp_path / "code" / "index")
    with pytest.raises(DataError, match=r"source code: the pack index .*/index lies inside .*code: put it elsewhere"):
        pack.run(config)
    assert not (tmp_path / "store").exists()
    config.data.sources["code"].pattern = "*.py"
    pack.run(config)


def test_the_report_lies_beside_the_index(config: PackConfig, tmp_path: Path) -> None:
    config.page = True
    pack.run(config)
    folder = tmp_path / "index"
    report = json.loads((folder / "report.json").read_text())
    assert report == index_report(folder, config.balance)
    assert "Windows of 128 rows" in (folder / "report.html").read_text()
    before = folder_bytes(folder)
    pack.run(config)
    assert folder_bytes(folder) == before
    config.overwrite, config.data.seed = True, 1
    pack.run(config)
    assert json.loads((folder / "report.json").read_text())["seed"] == 1
    assert folder_bytes(folder)["report.html"] != before["report.html"]


def test_a_page_of_another_index_does_not_stay(
    config: PackConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the run that replaces the index ends before the page, or makes none."""
    config.page = True
    pack.run(config)
    page = tmp_path / "index" / "report.html"
    before = page.read_text()
    config.overwrite, config.data.seed = True, 1
    with monkeypatch.context() as patch:
        patch.setattr("anchorcontext.report.packing_page.packing_page", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            pack.run(config)
    pack.run(config)
    assert page.read_text() != before
    config.page, config.data.seed = False, 2
    pack.run(config)
    assert not page.exists()


def _interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_the_order_of_sources_in_the_config_has_no_effect(config: PackConfig, tmp_path: Path) -> None:
    pack.run(config)
    config.data.sources = dict(reversed(config.data.sources.items()))
    pack.run(config)  # a difference would be refused


def test_a_mixture_is_packed_and_shown(config: PackConfig, capsys: pytest.CaptureFixture[str]) -> None:
    config.data.mixture = {"books": 1.0, "code": 3.0}
    config.data.total_tokens, config.data.exhausted = 8_000, "repeat"
    config.data.sources["books"].min_document_tokens = 20
    config.data.sources["code"].upsample_from_tokens = 50
    config.data.sources["code"].keep_short_fraction = 0.5
    config.data.domain_tags = {"code": "<s>"}
    pack.run(config)
    manifest = PackedWindows(config.data.index).manifest
    lines = [" ".join(line) for line in _lines(capsys)]
    for source, wanted, weight in (("books", 2_000, "25.00%"), ("code", 6_000, "75.00%")):
        figures = manifest["account"][source]["train"]
        assert figures["share"]["target_tokens"] == wanted
        assert abs(figures["tokens"] - wanted) < 128
        assert any(line.startswith(f"{source} {weight} {wanted:,} {figures['tokens']:,}") for line in lines)
    counts = manifest["splits"]["train"]
    assert counts["repeated"]["tokens"] > 0
    expected = {**counts["dropped"], "repeated by the mixture": counts["repeated"]}
    assert "shorter than min_document_tokens" in expected
    assert "short, left out by keep_short_fraction" in expected
    for what, amount in expected.items():
        assert f"train {what} {amount['documents']:,} {amount['tokens']:,}" in lines
    assert manifest["options"]["domain_tags"] == {"code": 0}


def test_a_mixture_that_asks_for_too_much_says_what_is_missing(config: PackConfig) -> None:
    config.data.mixture, config.data.total_tokens = {"books": 1.0, "code": 1.0}, 10**6
    with pytest.raises(DataError, match=r"books: needs 500,000 tokens, has [\d,]+ .*\n.*code: needs 500,000"):
        pack.run(config)


@pytest.mark.parametrize(
    "preset",
    [
        "upsampled_mix_128k",
        pytest.param("prolong_64k", marks=pytest.mark.slow),
        pytest.param("olmo3", marks=pytest.mark.slow),
    ],
)
def test_a_published_mixture_over_sources_of_its_names(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = OmegaConf.load(config_folder() / "mixture" / f"{preset}.yaml").mixture
    for number, name in enumerate(weights):
        texts = [{"text": chr(97 + number) * length} for length in (300, 5_000, 66_000, *range(100, 120))]
        write_jsonl(tmp_path / f"{name}.jsonl", texts)
    mine = {
        "sources": {name: {"path": str(tmp_path / f"{name}.jsonl")} for name in weights},
        "tokenizer": str(byte_tokenizer(tmp_path / "tokenizer")),
        **{name: str(tmp_path / name) for name in ("store", "index")},
    }
    (tmp_path / "conf" / "data").mkdir(parents=True)
    (tmp_path / "conf" / "data" / "mine.yaml").write_text(json.dumps(mine))
    settings = {"window_tokens": 8192, "total_tokens": 1_000_000, "exhausted": "repeat", "held_out_fraction": 0}
    overrides = [f"data.{name}={value}" for name, value in settings.items()]
    arguments = ["--config-dir", str(tmp_path / "conf"), "data=mine", f"mixture={preset}", "workers=1", *overrides]
    monkeypatch.setattr(sys, "argv", ["anchorcontext pack", *arguments])
    cli.start("pack")
    account = PackedWindows(mine["index"]).manifest["account"]
    total = sum(weights.values())
    for name, weight in weights.items():
        assert account[name]["train"]["tokens"] == pytest.approx(1_000_000 * weight / total, abs=8192)
        reasons = set(account[name]["train"]["dropped"])
        assert ("shorter than min_document_tokens" in reasons) == (
            preset == "prolong_64k" and name in ("repositories", "books")
        )
        assert ("short, left out by keep_short_fraction" in reasons) == ("upsampled" in preset)


def test_a_sample_speaks_of_the_whole(config: PackConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = {}
    for name, count in (("books", 400), ("code", 4_000)):
        texts = [{"text": "word " * (20 + number % 30)} for number in range(count)]
        whole[name] = sum(len(text["text"]) for text in texts)
        write_jsonl(tmp_path / f"{name}.jsonl", texts)
        config.data.sources[name] = SourceConfig(path=str(tmp_path / f"{name}.jsonl"))
    config.data.mixture, config.data.total_tokens = {"books": 1.0, "code": 1.0}, 400_000
    config.data.held_out_fraction, config.limit, config.page = 0.0, "10%", True
    pack.run(config)
    text = capsys.readouterr().out
    account = PackedWindows(folder_of(config.data.index, config.limit)).manifest["account"]
    for name, tokens in whole.items():
        share = account[name]["train"]["share"]
        assert share["fraction"] == pytest.approx(0.1, abs=0.001)
        assert share["available_tokens"] / share["fraction"] == pytest.approx(tokens, rel=0.3)
        assert share["target_tokens"] == pytest.approx(200_000 * share["fraction"], abs=1)
    assert re.search(r"books: NOT ENOUGH: [\d.]+[KM] of 200\.0K needed", text)
    assert re.search(r"code: enough: [\d.]+[KM] of 200\.0K needed", text)
    assert re.search(r"at most about [\d.]+ s for all of it, with as many workers", text)
    assert "The whole corpus, estimated" in text
    index = folder_of(config.data.index, config.limit)
    estimate = json.loads((index / "report.json").read_text())["mixture_estimate"]
    assert [(each["source"], each["enough"]) for each in estimate] == [("books", False), ("code", True)]
    page = (index / "report.html").read_text()
    assert '<td>books</td><td class="word">NOT ENOUGH</td>' in page
    assert '<td>code</td><td class="word">enough</td>' in page


def test_a_tag_that_is_no_token(config: PackConfig) -> None:
    config.data.domain_tags = {"code": "several"}
    with pytest.raises(DataError, match="'several' is 7 tokens, where one is needed"):
        pack.run(config)


def test_from_the_command_line(
    config: PackConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {"path": str(tmp_path / "code"), "pattern": "*.py"}
    (tmp_path / "conf" / "data").mkdir(parents=True)
    (tmp_path / "conf" / "data" / "mine.yaml").write_text(f"sources: {{code: {source}}}\n")
    settings = {name: getattr(config.data, name) for name in ("tokenizer", "store", "index", "window_tokens")}
    overrides = [f"data.{name}={value}" for name, value in settings.items()]
    arguments = ["anchorcontext pack", "--config-dir", str(tmp_path / "conf"), "data=mine", *overrides]
    monkeypatch.setattr(sys, "argv", arguments)
    cli.start("pack")
    assert len(PackedWindows(config.data.index)) > 0
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", [*arguments, "data.sources.code.text_field=5", "data.sources.code.format=jsonl"])
    with pytest.raises(SystemExit) as stopped:
        cli.start("pack")
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert "is not what this config makes" in message
    assert "Traceback" not in message


def test_names_and_paths_are_shown_as_they_are(
    config: PackConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("[red]x", ":smile:", "$_{no formula$", "a=b,\u00fc")
    config.data.sources = dict.fromkeys(names, config.data.sources["code"])
    config.data.store = str(tmp_path / "a[" / "b]" / "store")
    config.data.mixture = dict.fromkeys(config.data.sources, 1.0)
    config.page = True
    pack.run(config)
    printed = capsys.readouterr().out
    for name in names:
        assert f"store {config.data.store}/{name}: tokenized" in printed
        assert printed.count(f"\n  {name} ") == 2


def test_a_finished_store_that_cannot_be_written_is_reused(config: PackConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    pack.run(config)
    files = {path: path.stat().st_mtime_ns for path in Path(config.data.store).rglob("*")}
    monkeypatch.setattr("os.access", lambda path, mode: not Path(path).is_relative_to(config.data.store))
    config.data.index += "-2"
    pack.run(config)
    assert len(PackedWindows(config.data.index)) > 0
    assert {path: path.stat().st_mtime_ns for path in Path(config.data.store).rglob("*")} == files
    config.data.sources["code"].text_field = "other"
    config.overwrite = True
    with pytest.raises(DataError, match="cannot be written"):
        pack.run(config)


def test_an_index_finds_stores_that_were_moved_after_packing_again(config: PackConfig, tmp_path: Path) -> None:
    pack.run(config)
    before = PackedWindows(config.data.index)
    first = before[0].input_ids
    Path(config.data.store).rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="Move an index together with its stores"):
        PackedWindows(config.data.index)
    config.data.store = str(tmp_path / "elsewhere")
    pack.run(config)
    after = PackedWindows(config.data.index)
    assert after.index_hash == before.index_hash
    assert after[0].input_ids.equal(first)
