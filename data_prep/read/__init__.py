"""Files, whatever their format and wherever they lie -> documents."""

from data_prep.read.documents import EMPTY, FILTERED, Document, Record, Skipped, TokenDocument, check_bad
from data_prep.read.files import check_apart, find_files
from data_prep.read.parts import parse_limit, sample_files, split_file
from data_prep.read.records import Records, check_has_documents, content_hash, open_records
from data_prep.read.source import FORMATS, InputFile, Source, option_problems
from data_prep.read.storage import open_stream

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
    "check_apart",
    "check_bad",
    "check_has_documents",
    "content_hash",
    "find_files",
    "open_records",
    "open_stream",
    "option_problems",
    "parse_limit",
    "sample_files",
    "split_file",
]
