"""Single tokens as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from data_prep.errors import DataError
from data_prep.tokenize import load_tokenizer

_SENTENCEPIECE_SPACE = "\u2581"
_REPLACEMENT = "\ufffd"


class TokenText:
    """The text of token ids, by the tokenizer that an index was packed with.

    Args:
        path: folder or hub name of the tokenizer.
        tokenizer_hash: of the index; another tokenizer would show wrong text.

    Raises:
        DataError: no tokenizer there, or another one.
    """

    def __init__(self, path: str, tokenizer_hash: str) -> None:
        check_same_tokenizer(path, tokenizer_hash)
        self._tokenizer = _backend(path)

    def of(self, token_id: int) -> str:
        """The token's text in quotes, line breaks and the like escaped.

        A token that is part of a letter in UTF-8 is shown by its name in the vocabulary.
        """
        name = self._tokenizer.id_to_token(token_id) or f"id {token_id}"
        text = self._tokenizer.decode([token_id], skip_special_tokens=False)
        if _REPLACEMENT in text or not text:
            return repr(name)
        if name.startswith(_SENTENCEPIECE_SPACE) and not text.startswith(" "):
            text = f" {text}"  # decoders drop the first word's space
        return repr(text)

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of neighbouring tokens, control tokens among them."""
        return self._tokenizer.decode(list(token_ids), skip_special_tokens=False)


def check_same_tokenizer(path: str, tokenizer_hash: str) -> None:
    """Whether the tokenizer at `path` gives the same ids as the one an index was packed with.

    Raises:
        DataError: no tokenizer there, or another one.
    """
    found = load_tokenizer(path).info.hash
    if found != tokenizer_hash:
        raise DataError(
            f"tokenizer {path} is not the one the index was packed with (hash {found[:12]}, packed with "
            f"{tokenizer_hash[:12]}): name that one, or pack again with this one"
        )


def _backend(path: str) -> Tokenizer:
    definition = Path(path).expanduser() / "tokenizer.json"
    if definition.is_file():
        return Tokenizer.from_file(str(definition))
    from transformers import AutoTokenizer  # costs seconds, and hub names alone need it

    return AutoTokenizer.from_pretrained(path).backend_tokenizer
