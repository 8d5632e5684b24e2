"""`python -m anchorcontext.evaluate`: the command `anchorcontext evaluate`, for launchers too."""

from anchorcontext.cli import start

if __name__ == "__main__":
    start("evaluate")
