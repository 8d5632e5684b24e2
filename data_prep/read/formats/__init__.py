"""One module a format: open files -> rows."""
