"""Files -> documents: JSON lines and plain text, gzipped or not."""

from data_prep.read.documents import EMPTY, FILTERED, Document, Record, Skipped, TokenDocument
from data_prep.read.files import InputFile, find_files
from data_prep.read.records import Records, check_has_documents, content_hash, open_records
from data_prep.read.source import FORMATS, Source
from data_prep.read.split import split_file
from data_prep.read.streams import open_stream

__all__ = [
    "EMPTY",
    "FILTERED",
    "FORMATS",
    "Document",
    "InputFile",
    "Record",
    "Records",
    "Skipped",
    "Source",
    "TokenDocument",
    "check_has_documents",
    "content_hash",
    "find_files",
    "open_records",
    "open_stream",
    "split_file",
]
