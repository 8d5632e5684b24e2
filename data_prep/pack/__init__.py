"""Token stores -> pack index."""

from data_prep.pack.build import BuiltIndex, PackOptions, build_index
from data_prep.pack.index import SPLITS, PackIndex
from data_prep.pack.pieces import ENDS_DOCUMENT, PIECE_DTYPE, STARTS_DOCUMENT, piece_rows

__all__ = [
    "ENDS_DOCUMENT",
    "PIECE_DTYPE",
    "SPLITS",
    "STARTS_DOCUMENT",
    "BuiltIndex",
    "PackIndex",
    "PackOptions",
    "build_index",
    "piece_rows",
]
