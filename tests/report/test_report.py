"""The report is one file that holds everything, and says what is missing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from anchorcontext.errors import ConfigError
from anchorcontext.plots import PositionLoss, write_positions
from anchorcontext.report.build import build_report
from anchorcontext.report.html import table
from tests.data_prep.corpus import make_index


def write_run(folder: Path, num_steps: int = 3) -> Path:
    folder.mkdir(parents=True)
    steps: list[dict[str, Any]] = [
        {
            "step": step,
            "loss": 4.0 / step,
            "grad_norm": 1.0,
            "learning_rate": 1e-3,
            "tokens": 1000 * step,
            "valid_labels": 900,
            "step_seconds": 2.0,
            "tokens_per_second": 500.0,
            "peak_memory_gib": 0.5,
            "epoch": 0,
            "windows_consumed": step,
        }
        for step in range(1, num_steps + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return folder


def write_evaluation(folder: Path) -> Path:
    folder.mkdir(parents=True)
    models = {
        "base <1>": [PositionLoss(0, 64, 600, 2.5, 0.25), PositionLoss(64, 100, 40, 3.125, None)],
        "other": [PositionLoss(64, 100, 40, 1.5, 0.125)],
    }
    write_positions(folder / "by_position.csv", models)
    settings = {"windows": 16, "split": "held_out", "window_tokens": 100, "arm": "anchor"}
    (folder / "evaluation.json").write_text(json.dumps(settings))
    return folder


def test_a_whole_report_needs_nothing_else(tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    picture.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    path = build_report(
        tmp_path / "report",
        title="A & B",
        runs={"<first>": str(write_run(tmp_path / "run"))},
        evaluations={"held out": str(write_evaluation(tmp_path / "evaluation"))},
        indexes={"small": str(make_index(tmp_path / "data", ["abc", "defgh"], window_tokens=8, held_out_fraction=0.0))},
        pictures={"The mask": str(picture)},
    )
    page = path.read_text(encoding="utf-8")
    assert path == tmp_path / "report" / "index.html"
    assert "<h1>A &amp; B</h1>" in page
    assert len(re.findall("<h2>", page)) == 6  # three of them on the index
    sources = re.findall(r'src="([^"]{0,30})', page)
    assert [source.split(";")[0] for source in sources] == ["data:image/png"] * 8 + ["data:image/svg+xml"]
    assert not re.search(r'(href|src)="(?!data:)|@import|<script', page)
    assert "&lt;first&gt;" in page
    assert "base &lt;1&gt;" in page
    assert "<td>64 to 99</td><td>3.125</td><td>1.500 \u00b1 0.125</td>" in page
    assert "<td>0 to 63</td><td>2.500 \u00b1 0.250</td><td></td>" in page
    assert "<td>3</td><td>3,000</td><td>1.333</td><td>500</td><td>6 s</td>" in page
    assert "<td>texts</td><td>2</td><td>0</td><td>8</td><td>8</td><td>0</td>" in page
    assert all(re.search(r'alt="[^"]+"', image) for image in re.findall("<img[^>]*>", page))


def test_fewer_windows_than_were_asked_for(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path / "evaluation")
    output, evaluations = tmp_path / "report", {"x": str(folder)}
    assert "Note:" not in build_report(output, evaluations=evaluations).read_text(encoding="utf-8")
    settings = json.loads((folder / "evaluation.json").read_text())
    (folder / "evaluation.json").write_text(json.dumps({**settings, "note": "20 were asked for; all 16 are evaluated"}))
    page = build_report(output, evaluations=evaluations).read_text(encoding="utf-8")
    assert "Note: 20 were asked for; all 16 are evaluated." in page


def test_missing_input_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "metrics.jsonl").write_text('{"step": 1')
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "metrics.jsonl").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.jsonl").write_bytes(b'{"step": 1}\n\xff\xfe')
    text = tmp_path / "notes.txt"
    text.write_text("")
    cases = [
        ({"runs": {"x": str(empty)}}, r"runs\.x=.*has no metrics\.jsonl: give a run folder"),
        ({"runs": {"x": str(tmp_path / "bad")}}, r"runs\.x=.*metrics\.jsonl, line 1 is no logged step"),
        ({"runs": {"x": str(tmp_path / "other")}}, r"runs\.x=.*metrics\.jsonl, line 1 is no logged step"),
        ({"runs": {"x": str(tmp_path / "none")}}, r"runs\.x=.*has no step yet"),
        ({"evaluations": {"x": str(empty)}}, r"evaluations\.x=.*has no by_position\.csv: give an output folder"),
        ({"indexes": {"x": str(empty)}}, r"indexes\.x=.*not packed"),
        ({"pictures": {"x": str(text)}}, r"pictures\.x=.*must be a file that ends in \.png"),
    ]
    for inputs, message in cases:
        with pytest.raises(ConfigError, match=message):
            build_report(tmp_path / "report", **inputs)  # type: ignore[arg-type]
    assert not (tmp_path / "report").exists()


def test_settings_of_another_kind_are_refused(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path / "evaluation")
    for content in ("{}", "[1]", "3"):
        (folder / "evaluation.json").write_text(content)
        with pytest.raises(ConfigError, match=r"evaluations\.x="):
            build_report(tmp_path / "report", evaluations={"x": str(folder)})


def test_a_table_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = write_evaluation(tmp_path / "evaluation")
    (folder / "by_position.csv").write_text("a,b\n")
    with pytest.raises(ConfigError, match=r"evaluations\.x=.*no table of losses by position"):
        build_report(tmp_path / "report", evaluations={"x": str(folder)})


def test_columns_of_words_are_set_to_the_left() -> None:
    made = table(["name", "what", "count"], [["a", "b & c", "1"]], "title", {"what"})
    assert '<th>name</th><th class="word">what</th><th>count</th>' in made
    assert '<td>a</td><td class="word">b &amp; c</td><td>1</td>' in made
