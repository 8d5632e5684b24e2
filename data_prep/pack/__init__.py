"""Token stores -> pack index."""

from data_prep.mix import LengthRule
from data_prep.pack.build import BuiltIndex, build_index
from data_prep.pack.index import INDEX_FILES, SPLITS, PackIndex
from data_prep.pack.options import PackOptions
from data_prep.pack.pieces import ENDS_DOCUMENT, INNER_CHUNK, PIECE_DTYPE, STARTS_DOCUMENT, piece_rows, prefix_rows

__all__ = [
    "ENDS_DOCUMENT",
    "INDEX_FILES",
    "INNER_CHUNK",
    "PIECE_DTYPE",
    "SPLITS",
    "STARTS_DOCUMENT",
    "BuiltIndex",
    "LengthRule",
    "PackIndex",
    "PackOptions",
    "build_index",
    "piece_rows",
    "prefix_rows",
]
