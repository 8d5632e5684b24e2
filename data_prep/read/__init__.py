"""Files -> documents: JSON lines and plain text, gzipped or not."""

from data_prep.read.documents import EMPTY, FILTERED, READERS, Document, Record, Skipped, check_has_documents
from data_prep.read.files import InputFile, find_files
from data_prep.read.source import FORMATS, Source
from data_prep.read.streams import open_stream

__all__ = [
    "EMPTY",
    "FILTERED",
    "FORMATS",
    "READERS",
    "Document",
    "InputFile",
    "Record",
    "Skipped",
    "Source",
    "check_has_documents",
    "find_files",
    "open_stream",
]
