"""Byte-level BPE out of a tokenizer.json in the form tiktoken takes, where both give equal ids.

tokenizers merges the listed pair of lowest index; tiktoken merges any two neighbours whose join is a
token, the lowest rank first. Let a token's *last pair* be what tiktoken joins last when it encodes the
token's own bytes. Within a text, tiktoken can join two neighbours to a token only as that token's last
pair: nothing has been merged across its ends yet, so inside it the same merges happened in the same
order as when it stands alone. So the two agree on every text if each token's last pair is a listed
merge and ranks follow the order of the merges. That is what `read_byte_bpe` checks, token by token;
how a text is cut into words before merging is compared by `proof`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# How GPT-2 cuts a text into words: what "ByteLevel" means by use_regex.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# The same, each part of a text between single digits on its own: a digit is such a part's end.
_GPT2_SINGLE_DIGITS = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False}
_MAX_ADDED_TOKENS = 64

NO_ID = -1
"""Stands for a byte that the vocabulary lacks."""


class NoFastPathError(Exception):
    """Why a tokenizer cannot be run by tiktoken; the message continues "because"."""


@dataclass(frozen=True)
class ByteBpe:
    """What tiktoken needs.

    Attributes:
        pattern: cuts a text into the words that are merged on their own.
        ranks: tokens by their bytes, and when they are merged.
        ids: the id of each rank, int64 [ranks]; `NO_ID` for a byte that has none.
        nfc: a text is brought to Unicode's NFC first.
        added_tokens: texts that become one token wherever they stand, and are none of the BPE's.
    """

    pattern: str
    ranks: dict[bytes, int]
    ids: np.ndarray
    nfc: bool
    added_tokens: tuple[str, ...]


def read_byte_bpe(parsed: Mapping[str, Any]) -> ByteBpe:
    """Read a parsed tokenizer.json.

    Raises:
        NoFastPathError: it is no byte-level BPE of a known kind, or one whose ids tiktoken would not give.
    """
    model = parsed["model"]
    if model.get("type", "BPE") != "BPE" or "merges" not in model:
        raise NoFastPathError(f"its model is {model.get('type')}, not byte-level BPE")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(option):
            raise NoFastPathError(f"its BPE has {option}")
    pattern, nfc = _word_pattern(parsed.get("pre_tokenizer")), _is_nfc(parsed.get("normalizer"))
    added = tuple(token["content"] for token in parsed["added_tokens"] if not token["special"])
    if len(added) > _MAX_ADDED_TOKENS:
        raise NoFastPathError(f"it has {len(added)} added tokens that are no control tokens")
    ranks, ids = _ranks(model)
    return ByteBpe(pattern, ranks, ids, nfc, added)


def _is_nfc(normalizer: Any) -> bool:
    parts = _sequence(normalizer, "normalizers")
    if any(part != {"type": "NFC"} for part in parts):
        raise NoFastPathError(f"its normalizer is {' + '.join(part['type'] for part in parts)}")
    return bool(parts)


def _word_pattern(pre_tokenizer: Any) -> str:
    parts = _sequence(pre_tokenizer, "pretokenizers")
    if not parts or not _BYTE_LEVEL.items() <= parts[-1].items():
        raise NoFastPathError(f"its pre-tokenizer is {' + '.join(part['type'] for part in parts) or 'none'}")
    use_regex, before = parts[-1].get("use_regex", True), parts[:-1]
    if use_regex and not before:
        return _GPT2
    if use_regex and before == [{"type": "Digits", "individual_digits": True}]:
        return _GPT2_SINGLE_DIGITS
    if not use_regex and len(before) == 1 and before[0]["type"] == "Split":
        split = before[0]
        if split["behavior"] == "Isolated" and not split["invert"] and "Regex" in split["pattern"]:
            return split["pattern"]["Regex"]
    raise NoFastPathError(f"its pre-tokenizer is {' + '.join(part['type'] for part in parts)}")


def _sequence(value: Any, key: str) -> list[dict[str, Any]]:
    """A normalizer or pre-tokenizer as the list of its parts."""
    if value is None:
        return []
    if value["type"] != "Sequence":
        return [value]
    return [part for item in value[key] for part in _sequence(item, key)]


def _ranks(model: Mapping[str, Any]) -> tuple[dict[bytes, int], np.ndarray]:
    """Tokens in the order in which they are merged, single bytes first, and their ids."""
    vocab = _byte_vocabulary(model["vocab"])
    singles = sorted((bytes([byte]) for byte in range(256)), key=lambda byte: vocab.get(byte, len(vocab)))
    order = {token: rank for rank, token in enumerate(singles)}
    pairs = set()
    previous = b""
    from_text = _bytes_of_letters()
    for left_text, right_text in merge_pairs(model["merges"]):
        left, right = _to_bytes(left_text, from_text), _to_bytes(right_text, from_text)
        if left is None or right is None:
            continue  # letters that no byte is written as: never in a text
        token = left + right
        if token not in order:
            order[token] = len(order)
        elif token != previous:
            continue  # a second way to a token, later than others: never taken, or the check below fails
        previous = token
        pairs.add((left, right))
    whole_words = bool(model.get("ignore_merges"))
    if whole_words:
        for token in vocab:
            order.setdefault(token, len(order))
    kept = _checked(order, pairs, whole_words)
    ids = np.array([vocab.get(token, NO_ID) for token in kept], dtype=np.int64)
    return {token: rank for rank, token in enumerate(kept)}, ids


def _checked(order: Mapping[bytes, int], pairs: set[tuple[bytes, bytes]], whole_words: bool) -> list[bytes]:
    """The tokens that a text can become; a token that tiktoken would merge otherwise is an error.

    One that no merging reaches is found only as a whole word, and only where the model looks for those.
    """
    kept = []
    for token in order:
        parts = _last_parts(token, order)
        if len(parts) == 2 and (parts[0], parts[1]) not in pairs:
            raise NoFastPathError(f"tiktoken would merge {parts[0]!r} and {parts[1]!r}, and this tokenizer does not")
        if len(parts) <= 2 or whole_words:
            kept.append(token)
    return kept


def _last_parts(token: bytes, order: Mapping[bytes, int]) -> list[bytes]:
    """The token's bytes merged as far as goes without the last step: two parts, or more where it is out of reach."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        best, place = len(order), -1
        for at in range(len(parts) - 1):
            rank = order.get(parts[at] + parts[at + 1], best)
            if rank < best:
                best, place = rank, at
        if place < 0:
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts


def _byte_vocabulary(vocab: Mapping[str, int]) -> dict[bytes, int]:
    from_text = _bytes_of_letters()
    found = ((_to_bytes(text, from_text), index) for text, index in vocab.items())
    return {token: index for token, index in found if token}


def _to_bytes(text: str, from_text: Mapping[str, int]) -> bytes | None:
    try:
        return bytes([from_text[letter] for letter in text])
    except KeyError:
        return None


def _bytes_of_letters() -> dict[str, int]:
    """The letter that a byte-level vocabulary writes for each byte, reversed: printable bytes are themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    letters.update({chr(256 + number): byte for number, byte in enumerate(others)})
    return letters


def merge_pairs(merges: list[Any]) -> list[list[str]]:
    """BPE merges as pairs; older files hold them as one string."""
    return [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
