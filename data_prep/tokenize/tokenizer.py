"""A Hugging Face fast tokenizer as documents need it: plain ids, no BOS or EOS, control tokens as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from tokenizers import Tokenizer

from data_prep.disk import digest_json
from data_prep.errors import DataError
from data_prep.tokenize.byte_bpe import ByteBpe, NoFastPathError, merge_pairs, read_byte_bpe
from data_prep.tokenize.proof import torture_texts, tricky_texts
from data_prep.tokenize.segments import SEGMENT_CHARACTERS, Cuts, choose_cuts, join
from data_prep.tokenize.tiktoken_encoder import TiktokenEncoder

_UINT16_IDS = 1 << 16
_PROOF_SEGMENT_CHARACTERS = 200
_COMPARED_AT_ONCE = 4096
_SHOWN_CHARACTERS = 60
_UNSPELLABLE = "\ufdd0"
# The parts of tokenizer.json that decide a document's ids. Decoder, post-processor, padding and
# truncation do not, and the library rewrites them freely when a tokenizer is saved again.
_SECTIONS = ("model", "normalizer", "pre_tokenizer", "added_tokens")


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
            if name == _unspellable(token, index):
                return index
        (ids,) = self.encode([token])
        if len(ids) != 1:
            raise DataError(
                f"tokenizer {self.info.path}: {token!r} is {len(ids)} tokens, where one is needed: name a token of its "
                "vocabulary, such as one it reserves"
            )
        return int(ids[0])


def load_tokenizer(path: str) -> DocumentTokenizer:
    """Load a tokenizer from a folder or, by name, from the hub or its cache.

    A folder that says everything itself (tokenizer.json, and both bos_token and eos_token in
    tokenizer_config.json or special_tokens_map.json) is read without transformers; what is left
    unsaid is a default of the tokenizer's class, which transformers knows.

    Raises:
        DataError: no such tokenizer, not a fast one, or one without an EOS token.
    """
    folder = Path(path).expanduser()
    if folder.is_dir() and (named := _named_tokens(folder)) is not None:
        definition = (folder / "tokenizer.json").read_text(encoding="utf-8")
        return _build(path, definition, *named)
    if not folder.is_dir() and (folder.is_absolute() or path.startswith((".", "~"))):
        raise DataError(f"tokenizer {path}: no such folder")
    return _load_by_transformers(path)


def _named_tokens(folder: Path) -> tuple[str | None, str | None] | None:
    """BOS and EOS as the folder's files state them; None where they leave one to the class."""
    if not (folder / "tokenizer.json").is_file():
        return None
    stated: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            try:
                stated.update(orjson.loads((folder / name).read_bytes()))
            except ValueError as error:
                raise DataError(f"tokenizer {folder}: {name} is not JSON: {error}") from error
    if "bos_token" not in stated or "eos_token" not in stated:
        return None
    bos, eos = (_token_text(stated[key]) for key in ("bos_token", "eos_token"))
    return bos, eos


def _token_text(token: Any) -> str | None:
    return token["content"] if isinstance(token, dict) else token


def _load_by_transformers(path: str) -> DocumentTokenizer:
    from transformers import AutoTokenizer  # costs seconds, and is rarely needed

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except Exception as error:
        raise DataError(f"tokenizer {path} cannot be loaded: {error}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise DataError(f"tokenizer {path} is a {type(tokenizer).__name__}, not a fast tokenizer (tokenizer.json)")
    return _build(path, backend.to_str(), tokenizer.bos_token, tokenizer.eos_token)


def _build(path: str, definition: str, bos: str | None, eos: str | None) -> DocumentTokenizer:
    if eos is None:
        raise DataError(f"tokenizer {path} has no eos_token: name one in its tokenizer_config.json")
    anchor = eos if bos is None else bos
    try:
        parsed = orjson.loads(definition)
        ids = _vocabulary(parsed)
        for token in (anchor, eos):
            if token not in ids:
                raise DataError(f"tokenizer {path}: {token!r} is named as BOS or EOS but is not in its vocabulary")
        digest = digest_json([_canonical({key: parsed.get(key) for key in _SECTIONS}), ids[anchor], ids[eos]])
        info = TokenizerInfo(path, digest, max(ids.values()) + 1, ids[anchor], anchor, ids[eos])
        controls = {token["content"] for token in parsed["added_tokens"] if token["special"]} | {anchor, eos}
        reachable = _without_controls(parsed, {token: ids[token] for token in sorted(controls)})
        tokenizer = DocumentTokenizer(info, orjson.dumps(reachable).decode())
    except DataError:
        raise
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"tokenizer {path}: its tokenizer.json cannot be used: {error!r}") from error
    _check_controls(tokenizer, {token: ids[token] for token in controls}, _unknown_id(parsed["model"]))
    return tokenizer


def _check_controls(tokenizer: DocumentTokenizer, controls: dict[str, int], unknown_id: int | None) -> None:
    ids = set(controls.values()) - {unknown_id}  # letters outside the vocabulary may become it
    for token, encoded in zip(controls, tokenizer.encode(list(controls)), strict=True):
        if found := ids.intersection(encoded.tolist()):
            raise DataError(
                f"tokenizer {tokenizer.info.path}: the text {token!r} in a document becomes the control token "
                f"{min(found)}, and there is no way to keep it text"
            )


def _vocabulary(parsed: dict[str, Any]) -> dict[str, int]:
    """Every token's id, the added ones included."""
    vocab = parsed["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {text: index for index, (text, _) in enumerate(vocab)}
    ids.update({token["content"]: token["id"] for token in parsed["added_tokens"]})
    return ids


def _canonical(value: Any) -> Any:
    """The same for every way the library writes one tokenizer: defaults left out, merges as pairs."""
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, item in value.items():
        if key == "merges":
            kept[key] = merge_pairs(item)
        elif key == "vocab":
            kept[key] = item
        elif not (item is None or item is False or item == ""):
            kept[key] = _canonical(item)
    return kept


def _without_controls(parsed: dict[str, Any], controls: dict[str, int]) -> dict[str, Any]:
    """The definition with control tokens out of the reach of any text.

    `encode_special_tokens` keeps the library from cutting special tokens out of a text, but a model
    whose own vocabulary holds them may still find them in the letters (Unigram, WordLevel, BPE with
    ignore_merges). There they get names that no text can spell.
    """
    model = dict(parsed["model"])
    vocab = model["vocab"]
    inside = controls.keys() & (vocab.keys() if isinstance(vocab, dict) else {text for text, _ in vocab})
    renamed = {text: _unspellable(text, controls[text]) for text in inside}
    if isinstance(vocab, dict):
        model["vocab"] = {renamed.get(text, text): index for text, index in vocab.items()}
    else:
        model["vocab"] = [[renamed.get(text, text), score] for text, score in vocab]
    if model.get("unk_token") in renamed:
        model["unk_token"] = renamed[model["unk_token"]]
    if "merges" in model:
        model["merges"] = [merge for merge in merge_pairs(model["merges"]) if not inside & {*merge, "".join(merge)}]
    # A renamed token must not be looked up by its old name; one outside the vocabulary keeps its
    # entry, because ids of later added tokens follow from it.
    added = [
        {**token, "special": token["content"] in controls}
        for token in parsed["added_tokens"]
        if token["content"] not in inside
    ]
    return {**parsed, "model": model, "added_tokens": added}


def _unknown_id(model: dict[str, Any]) -> int | None:
    if isinstance(model["vocab"], dict):
        return model["vocab"].get(model.get("unk_token"))
    return model.get("unk_id")


def _unspellable(text: str, index: int) -> str:
    """A name that no text holds (noncharacters) and no pre-tokenizer leaves in one part (spaces)."""
    return f"{_UNSPELLABLE} \ufdd1 control {index} \ufdd1 {text} {_UNSPELLABLE}"
