"""One HTML page from runs, evaluations, pack indexes and pictures; the tables of a pack index.

The page holds its images and needs nothing else: it opens offline, and can be sent as one file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anchorcontext.report.build import build_report

__all__ = ["build_report"]


def __getattr__(name: str) -> Any:
    if name == "build_report":
        from anchorcontext.report.build import build_report  # matplotlib costs a second

        return build_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
