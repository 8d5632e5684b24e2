"""`anchorcontext inspect`: packed windows, and a whole index, as a person reads them.

What is shown is what training sees: the rows of `PackedWindows`, and positions, segments and labels
of `WindowLayout`, not a reconstruction. `browse=true` walks through windows in the terminal,
`statistics=FILE.html` draws the index, `verify=true` reads every byte of it and of its stores.
"""

from __future__ import annotations

from anchorcontext.config.app import hydra_command
from anchorcontext.inspect.command import run

__all__ = ["main", "run"]

main = hydra_command("inspect", run)
