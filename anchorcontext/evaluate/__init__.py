"""Evaluation of checkpoints through the training attention path; `python -m anchorcontext.evaluate` is the command.

`losses` runs a model over packed windows on any number of ranks. Each evaluation is a module beside
it that says what is made of the losses: `positions` for loss by position.
"""
