"""Training on the DeepSpeed engine; `python -m anchorcontext.train` is the command."""
