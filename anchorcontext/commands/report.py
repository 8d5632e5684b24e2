"""one HTML page from runs and evaluations."""

from __future__ import annotations

from anchorcontext.config.schema import ReportConfig
from anchorcontext.report.build import build_report


def run(config: ReportConfig) -> None:
    """Write the page and print its path.

    Raises:
        ConfigError: an input that is missing or is not what an earlier command wrote.
    """
    path = build_report(
        config.output,
        title=config.title,
        runs=config.runs,
        evaluations=config.evaluations,
        indexes=config.indexes,
        pictures=config.pictures,
    )
    print(f"report: {path}")
