"""`anchorcontext report`: one HTML page from runs, evaluations, pack indexes and pictures.

The page holds its images and needs nothing else: it opens offline, and can be sent as one file.
"""

from __future__ import annotations

from anchorcontext.config.app import hydra_command
from anchorcontext.config.schema import ReportConfig


def run(config: ReportConfig) -> None:
    from anchorcontext.report.build import build_report  # imports matplotlib: not for --help

    print(f"report: {build_report(config)}")


main = hydra_command("report", run)
