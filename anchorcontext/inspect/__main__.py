"""`python -m anchorcontext.inspect`."""

from anchorcontext.inspect import main

if __name__ == "__main__":
    main()
