"""Documents -> token stores."""

from data_prep.tokenize.build import BuiltStore, build_stores
from data_prep.tokenize.load import load_tokenizer
from data_prep.tokenize.tokenizer import DocumentTokenizer, TokenizerInfo

__all__ = ["BuiltStore", "DocumentTokenizer", "TokenizerInfo", "build_stores", "load_tokenizer"]
