"""`python -m anchorcontext.report`: the command `anchorcontext report`, for launchers too."""

from anchorcontext.cli import start

if __name__ == "__main__":
    start("report")
