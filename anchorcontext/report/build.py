"""The report page, section by section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from anchorcontext.plots import draw_loss_by_position, draw_training, to_png
from anchorcontext.report.html import figure, page, section, table
from anchorcontext.report.packing_page import packing_sections
from anchorcontext.report.sources import (
    Evaluation,
    read_evaluation,
    read_index,
    read_picture,
    read_run,
    run_facts,
)


def build_report(
    output: str | Path,
    *,
    title: str = "AnchorContext",
    runs: Mapping[str, str] | None = None,
    evaluations: Mapping[str, str] | None = None,
    indexes: Mapping[str, str] | None = None,
    pictures: Mapping[str, str] | None = None,
) -> Path:
    """Write `index.html` into the folder `output`; returns its path.

    Args:
        runs: run folders of training, by the names that the page gives them.
        evaluations: output folders of `evaluate_positions`, by name.
        indexes: pack indexes, by name.
        pictures: image files, by caption.

    Raises:
        ConfigError: an input that is missing or is not what an earlier command wrote; nothing is
            written then.
    """
    sections = [
        *_evaluations(evaluations or {}),
        *_runs(runs or {}),
        *_indexes(indexes or {}),
        *_pictures(pictures or {}),
    ]
    folder = Path(output).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    path.write_text(page(title, sections), encoding="utf-8")
    return path


def _evaluations(evaluations: Mapping[str, str]) -> Iterator[str]:
    for name, folder in evaluations.items():
        evaluation = read_evaluation(name, folder)
        settings = evaluation.settings
        title = f"{settings['windows']:,} {settings['split']} windows of {settings['window_tokens']:,} rows"
        drawn = draw_loss_by_position(evaluation.models, f"Loss by position, {title}")
        text = (
            f"Mean loss of the tokens that rows at each position predict, over {title}, every model under the "
            f"attention arm {settings['arm']}. Bars are one standard error over windows."
        )
        if note := settings.get("note"):  # fewer windows than were asked for
            text += f" Note: {note}."
        alt = "Loss in nats a token against position in the window, a line for each model."
        yield section(f"Loss by position: {name}", text, figure(to_png(drawn), alt), _position_table(evaluation))


def _position_table(evaluation: Evaluation) -> str:
    buckets = sorted({(each.low, each.high) for of_model in evaluation.models.values() for each in of_model})
    found = {(name, each.low): each for name, of_model in evaluation.models.items() for each in of_model}
    lines = []
    for low, high in buckets:
        cells = [f"{low:,} to {high - 1:,}"]
        for name in evaluation.models:
            each = found.get((name, low))
            error = "" if each is None or each.standard_error is None else f" \u00b1 {each.standard_error:.3f}"
            cells.append("" if each is None else f"{each.loss:.3f}{error}")
        lines.append(cells)
    return table(["position", *evaluation.models], lines, "Loss in nats a token, and its standard error")


def _runs(runs: Mapping[str, str]) -> Iterator[str]:
    if not runs:
        return
    steps_of = {name: read_run(name, folder) for name, folder in runs.items()}
    drawn = draw_training(steps_of)
    facts = {name: dict(run_facts(steps)) for name, steps in steps_of.items()}
    columns = list(next(iter(facts.values())))
    lines = [[name, *(values[column] for column in columns)] for name, values in facts.items()]
    alt = "Training loss, gradient norm and learning rate of each run against tokens seen."
    yield section("Training", "", figure(to_png(drawn), alt), table(["run", *columns], lines))


def _indexes(indexes: Mapping[str, str]) -> Iterator[str]:
    for name, folder in indexes.items():
        yield from packing_sections(name, read_index(name, folder))


def _pictures(pictures: Mapping[str, str]) -> Iterator[str]:
    if not pictures:
        return
    figures = []
    for caption, path in pictures.items():
        media_type, data = read_picture(caption, path)
        figures.append(figure(data, caption, caption=caption, media_type=media_type))
    yield section("Pictures", "", *figures)
