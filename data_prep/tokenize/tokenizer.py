"""A Hugging Face fast tokenizer as documents need it: plain ids, no BOS or EOS, control tokens as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import orjson
from tokenizers import Tokenizer

from data_prep.errors import DataError
from data_prep.tokenize.byte_bpe import ByteBpe, NoFastPathError, read_byte_bpe
from data_prep.tokenize.proof import torture_texts, tricky_texts
from data_prep.tokenize.segments import SEGMENT_CHARACTERS, Cuts, choose_cuts, join
from data_prep.tokenize.tiktoken_encoder import TiktokenEncoder

_UINT16_IDS = 1 << 16
_PROOF_SEGMENT_CHARACTERS = 200
_COMPARED_AT_ONCE = 4096
_SHOWN_CHARACTERS = 60
_UNSPELLABLE = "\ufdd0"


@dataclass(frozen=True)
class TokenizerInfo:
    """What a store says about its tokenizer.

    Attributes:
        path: folder or hub name, as the user gave it.
        hash: SHA-256 of what decides ids; the same for a copy or a re-saved tokenizer.
        vocab_size: the largest id that exists, plus one.
        anchor_id: the token that begins every piece: BOS, or EOS where there is no BOS.
        anchor_token: its text.
        eos_id: the end-of-document token.
    """

    path: str
    hash: str
    vocab_size: int
    anchor_id: int
    anchor_token: str
    eos_id: int

    @property
    def dtype(self) -> str:
        """How a store keeps ids: little-endian uint16 where every id fits, else uint32."""
        return "<u2" if self.vocab_size <= _UINT16_IDS else "<u4"


class DocumentTokenizer:
    """Encodes documents; picklable, so that worker processes can be given it.

    Control tokens in a text are ordinary text: no document can end itself or bring an anchor.

    Args:
        info: what the store records.
        definition: a tokenizer.json whose control tokens are out of every text's reach.
        bpe: the same for tiktoken, if it is to be used; `use_fast_path` finds out.
    """

    def __init__(self, info: TokenizerInfo, definition: str, bpe: ByteBpe | None = None) -> None:
        self.info = info
        self._definition = definition
        self._bpe = bpe
        self._tokenizer = Tokenizer.from_str(definition)
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def __reduce__(self) -> tuple[Any, ...]:
        return DocumentTokenizer, (self.info, self._definition, self._bpe)

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of each text, in the store's dtype, without any special token."""
        if self._fast is not None:
            return [self._fast.encode(text) for text in texts]
        return self._encode_slowly(texts)

    def use_fast_path(self, samples: Sequence[str]) -> str:
        """Take tiktoken from now on if it gives the same ids; says in words what is used and why.

        Args:
            samples: texts to compare on, besides those that the project brings.
        """
        try:
            bpe = read_byte_bpe(orjson.loads(self._definition))
            texts = [*torture_texts(), *samples]
            fast, cutting = (
                TiktokenEncoder(bpe, self._cuts, self._encode_slowly, self.info.dtype, characters)
                for characters in (SEGMENT_CHARACTERS, _PROOF_SEGMENT_CHARACTERS)
            )
            self._compare(fast, texts)
            self._compare(cutting, [*tricky_texts(), *samples])
        except NoFastPathError as reason:
            return f"tokenizers (Hugging Face), because {reason}"
        self._bpe = bpe
        self.__dict__.pop("_fast", None)
        return f"tiktoken, whose ids are those of tokenizers on {len(texts):,} texts"

    def _compare(self, fast: TiktokenEncoder, texts: Sequence[str]) -> None:
        for begin in range(0, len(texts), _COMPARED_AT_ONCE):
            part = texts[begin : begin + _COMPARED_AT_ONCE]
            for text, ids in zip(part, self._encode_slowly(part), strict=True):
                if not np.array_equal(fast.encode(text), ids):
                    raise NoFastPathError(f"tiktoken gives other ids for {text[:_SHOWN_CHARACTERS]!r}")

    @cached_property
    def _fast(self) -> TiktokenEncoder | None:
        if self._bpe is None:
            return None
        return TiktokenEncoder(self._bpe, self._cuts, self._encode_slowly, self.info.dtype)

    @cached_property
    def _cuts(self) -> Cuts | None:
        """Where long texts may be cut."""
        tokens = (text for text in self._tokenizer.get_vocab() if not text.startswith(_UNSPELLABLE))
        return choose_cuts(self._encode_whole, tricky_texts(), tokens)

    def _encode_slowly(self, texts: Sequence[str]) -> list[np.ndarray]:
        """By the tokenizers library, a bounded number of characters at once."""
        found: list[np.ndarray] = []
        group: list[str] = []
        for text in texts:
            if len(text) <= 2 * SEGMENT_CHARACTERS:
                group.append(text)
                continue
            found += self._encode_whole(group)
            group = []
            segments = [text] if self._cuts is None else self._cuts.segments(text, SEGMENT_CHARACTERS)
            found.append(join([self._encode_whole([segment])[0] for segment in segments]))
        return [*found, *self._encode_whole(group)]

    def _encode_whole(self, texts: Sequence[str]) -> list[np.ndarray]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=self.info.dtype) for encoding in encodings]

    def token_id(self, token: str) -> int:
        """The id of one token, by its name in the vocabulary (control tokens have one) or by its text.

        Raises:
            DataError: no token, or several.
        """
        named = self._tokenizer.token_to_id(token)
        if named is not None:
            return named
        for name, index in self._tokenizer.get_vocab().items():
            if name == unspellable(token, index):
                return index
        (ids,) = self.encode([token])
        if len(ids) != 1:
            raise DataError(
                f"tokenizer {self.info.path}: {token!r} is {len(ids)} tokens, where one is needed: name a token of its "
                "vocabulary, such as one it reserves"
            )
        return int(ids[0])


def unspellable(text: str, index: int) -> str:
    """A name that no text holds (noncharacters) and no pre-tokenizer leaves in one part (spaces)."""
    return f"{_UNSPELLABLE} \ufdd1 control {index} \ufdd1 {text} {_UNSPELLABLE}"
