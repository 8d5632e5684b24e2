"""The old home of `anchorcontext.errors`."""

from anchorcontext.errors import ConfigError, Problem, RunError

__all__ = ["ConfigError", "Problem", "RunError"]
