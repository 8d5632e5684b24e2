"""`python -m anchorcontext COMMAND ...`."""

from anchorcontext.cli import main

if __name__ == "__main__":
    main()
