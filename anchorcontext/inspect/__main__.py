"""`python -m anchorcontext.inspect`: the command `anchorcontext inspect`, for launchers too."""

from anchorcontext.cli import start

if __name__ == "__main__":
    start("inspect")
