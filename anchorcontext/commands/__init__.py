"""The commands, one file each: `anchorcontext NAME` is the module of that name here.

A module's docstring begins with the line that `anchorcontext --help` prints, and its `run(config)`
hands the config to one function of the library and prints what comes back. `anchorcontext.cli` finds
the modules by listing this folder. Nothing else imports them.
"""
