"""Packed windows, and a whole index, as people read them.

What is shown is what training sees: the rows of `PackedWindows`, and the positions, segments and labels
of `WindowLayout`, not a reconstruction. `window` describes one window, `verify` reads every byte of an
index and of its stores.
"""
