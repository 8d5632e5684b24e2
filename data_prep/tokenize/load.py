"""Tokenizers as they lie in folders and on the hub, made into what encodes documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from tokenizers import Tokenizer

from data_prep.disk import digest_json
from data_prep.errors import DataError
from data_prep.tokenize.byte_bpe import merge_pairs
from data_prep.tokenize.tokenizer import DocumentTokenizer, TokenizerInfo, unspellable

# The parts of tokenizer.json that decide a document's ids. Decoder, post-processor, padding and
# truncation do not, and the library rewrites them freely when a tokenizer is saved again.
_SECTIONS = ("model", "normalizer", "pre_tokenizer", "added_tokens")


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
    renamed = {text: unspellable(text, controls[text]) for text in inside}
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
