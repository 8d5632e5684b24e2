"""From text files to a token store and a pack index: reading, tokenizing, packing.

Imports no torch and nothing of anchorcontext. The stages, in order:

- `read`: files -> documents, with everything skipped accounted for;
- `tokenize`: documents -> a token store (`store`), one a source;
- `pack`: token stores -> a pack index, which documents make up which window.
"""
