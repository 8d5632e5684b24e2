"""Documents -> ids by tiktoken, several times faster than by tokenizers and with bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from data_prep.tokenize.byte_bpe import NO_ID, ByteBpe, NoFastPathError
from data_prep.tokenize.segments import SEGMENT_CHARACTERS, Cuts, Encode, join

# A run of letters or marks without any place to cut is one word: it is taken up again a few tokens
# before the end of what has been encoded, where only letters or marks stand on both sides.
_RUN_CHARACTERS = 1 << 16
_RUN_MARGIN = 1 << 12
_TAIL_TOKENS = 16


class TiktokenEncoder:
    """Encodes by tiktoken, and leaves to `encode_slowly` the texts that tiktoken cannot do.

    Args:
        bpe: a tokenizer whose ids tiktoken gives.
        cuts: where long texts may be cut; None keeps them whole.
        encode_slowly: the same ids for any text.
        dtype: of the ids.

    Raises:
        NoFastPathError: tiktoken is not installed, or cannot take the tokenizer.
    """

    def __init__(
        self,
        bpe: ByteBpe,
        cuts: Cuts | None,
        encode_slowly: Encode,
        dtype: str,
        segment_characters: int = SEGMENT_CHARACTERS,
    ) -> None:
        try:
            import tiktoken

            self._encoding = tiktoken.Encoding(
                "documents", pat_str=bpe.pattern, mergeable_ranks=bpe.ranks, special_tokens={}
            )
        except ImportError:
            raise NoFastPathError("tiktoken is not installed") from None
        except ValueError as error:
            raise NoFastPathError(f"tiktoken cannot take it ({error})") from None
        self._bpe, self._cuts, self._encode_slowly = bpe, cuts, encode_slowly
        self._characters = segment_characters
        self._lacks = bpe.ids == NO_ID if (bpe.ids == NO_ID).any() else None
        self._ids = bpe.ids.astype(dtype)
        self._same = np.dtype(dtype) == np.uint32 and np.array_equal(bpe.ids, np.arange(len(bpe.ids)))
        self._nfc = _nfc() if bpe.nfc else None

    def encode(self, text: str) -> np.ndarray:
        """The ids of a text."""
        if any(token in text for token in self._bpe.added_tokens):
            return self._encode_slowly([text])[0]
        if self._nfc is not None and not text.isascii():
            text = self._nfc(text)
            if any(token in text for token in self._bpe.added_tokens):
                return self._encode_slowly([text])[0]
        if len(text) <= 2 * self._characters:
            return self._encode_segment(text)
        segments = [text] if self._cuts is None else self._cuts.segments(text, self._characters)
        return join([array for segment in segments for array in self._encode_run(segment)], self._ids)

    def _encode_segment(self, text: str) -> np.ndarray:
        ranks = self._ranks(text)
        if ranks is None or (self._lacks is not None and self._lacks[ranks].any()):
            return self._encode_slowly([text])[0]
        return ranks if self._same else self._ids[ranks]

    def _ranks(self, text: str) -> np.ndarray | None:
        try:
            return self._encoding.encode_to_numpy(text, disallowed_special=())
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException:  # no plain Exception where its Rust code panics: too long a run of white space
            return None

    def _encode_run(self, text: str) -> Sequence[np.ndarray]:
        """A segment; a very long one with nowhere to cut in parts that begin at a token's border.

        Every two neighbours of BPE tokens are what BPE makes of the two alone, so what follows a border
        does not depend on what is before it as long as the token behind the border stays the same.
        """
        found: list[np.ndarray] = []
        begin, expected = 0, None
        while len(text) - begin > 2 * self._characters:
            end = begin + min(_RUN_CHARACTERS, self._characters)
            if not _is_one_run(text[end - _RUN_MARGIN : end + _RUN_MARGIN]):
                break
            ranks = self._ranks(text[begin:end])
            tail = None if ranks is None else self._tail(ranks)
            if ranks is None or tail is None or (expected is not None and ranks[0] != expected):
                return [self._encode_segment(text)]
            kept, characters = tail
            found.append(self._ids[ranks[:kept]])
            begin, expected = end - characters, ranks[kept]
        if not found:
            return [self._encode_segment(text)]
        rest = self._ranks(text[begin:])
        if rest is None or rest[0] != expected or self._lacks is not None:
            return [self._encode_segment(text)]
        return [*found, self._ids[rest]]

    def _tail(self, ranks: np.ndarray) -> tuple[int, int] | None:
        """How many of a part's tokens are settled, and how many characters the others spell."""
        for tokens in range(_TAIL_TOKENS, _TAIL_TOKENS + 4):  # a border may lie inside a character
            try:
                characters = len(self._encoding.decode_bytes(ranks[-tokens:].tolist()).decode())
            except UnicodeDecodeError:
                continue
            return (len(ranks) - tokens, characters) if tokens < len(ranks) and characters < _RUN_MARGIN else None
        return None


def _is_one_run(text: str) -> bool:
    """Letters alone or marks alone: no word ends inside."""
    return text.isalpha() or not any(letter.isalnum() or letter.isspace() for letter in text)


def _nfc() -> Callable[[str], str]:
    """The tokenizers library's own NFC: Python's may be of another version of Unicode."""
    from tokenizers import normalizers

    return normalizers.NFC().normalize_str
