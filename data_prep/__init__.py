"""From files of documents to windows of tokens, in five steps; needs neither torch nor anchorcontext.

Open the modules in this order:

1. `read`: files -> documents. `source` says what to read and `files` finds it; `parts` takes a sample and
   cuts large files; `records` reads one file, by `formats` and `documents`, over `storage` and `unpack`.
2. `tokenize`: documents -> tokens. `load` and `tokenizer` make text into ids; `build` plans all sources,
   `shards` does one unit of work, `pool` and `cluster` do many at once, `manifest` finishes a store.
3. `mix`: how many tokens of each source are packed, and which of its documents by their lengths.
4. `pack`: token stores -> a pack index. `options` and `pieces` define the terms; `build` calls `selection`
   (which documents, cut into pieces), `windows` and `bins` (which window each piece goes into) and
   `account` (what became of every token); `index` reads the result.
5. `store`: what lies on the disk between these steps. `disk` writes files that are either whole or absent,
   and `verify` checks stores and indexes byte by byte.

Everything that the user can fix is raised as `errors.DataError`.
"""
