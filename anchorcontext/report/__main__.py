"""`python -m anchorcontext.report`."""

from anchorcontext.report import main

if __name__ == "__main__":
    main()
