"""`python -m anchorcontext.train`: the command `anchorcontext train`, for launchers too."""

from anchorcontext.cli import start

if __name__ == "__main__":
    start("train")
