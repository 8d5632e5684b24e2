"""Documents -> the files of one shard; writing can stop and resume at any document."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.disk import GrowingFile, sync_folder, write_json
from data_prep.read import EMPTY, FILTERED, Document, InputFile, Record, Skipped, TokenDocument
from data_prep.store import KINDS, MASK, shard_file
from data_prep.tokenize.tokenizer import DocumentTokenizer, TokenizerInfo

OTHER_IDS = "token id outside the vocabulary"
OTHER_MASK = "mask of another length"
FAILED = "the tokenizer failed"
PARTS = "parts"
SKIPPED_KIND = "skipped"

_BATCH_CHARACTERS = 1 << 20
_CHARACTERS_PER_TOKEN = 4
_DETAIL_CHARACTERS = 200


def plain_tokens(document: TokenDocument, info: TokenizerInfo) -> tuple[np.ndarray | Skipped, np.ndarray | None]:
    """The ids without leading anchors and trailing EOS, in the store's dtype, and the mask that goes with them.

    A store holds neither, because every piece gets its own; the data may contain one
    or, by mistake, two. Inside a document they are tokens like others.
    """
    ids, mask = document.ids, document.mask
    if mask is not None and len(mask) != len(ids):
        return Skipped(document.line, OTHER_MASK, f"{len(ids)} tokens, {len(mask)} in the mask"), None
    if len(ids) and not (ids.min() >= 0 and ids.max() < info.vocab_size):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        return Skipped(
            document.line, OTHER_IDS, f"{wrong}, of {info.vocab_size} tokens: made with another tokenizer?"
        ), None
    begin = _run(ids, info.anchor_id)
    end = len(ids) - _run(ids[begin:][::-1], info.eos_id)
    if begin == end:
        return Skipped(document.line, EMPTY, "no token but BOS and EOS"), None
    kept = None if mask is None else np.asarray(mask[begin:end], dtype=bool)
    return ids[begin:end].astype(info.dtype), kept


def _run(ids: np.ndarray, token: int) -> int:
    """How many of the first ids are this token."""
    others = np.flatnonzero(ids != token)
    return int(others[0]) if len(others) else len(ids)


@dataclass
class Counts:
    """What a shard holds so far."""

    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


class ShardWriter:
    """Gathers documents into batches, tokenizes them and writes the shard's files.

    Until `commit` they lie, growing, in the store's folder of parts. A checkpoint states their sizes:
    a writer that begins from it truncates what was written later and continues.

    Args:
        folder: the store.
        number: of the shard.
        checkpoint: what `checkpoint` wrote in an earlier process; None starts from the beginning.
    """

    def __init__(
        self, folder: Path, number: int, tokenizer: DocumentTokenizer, checkpoint: dict[str, Any] | None
    ) -> None:
        self._folder = folder
        self._number = number
        self._tokenizer = tokenizer
        sizes = checkpoint["sizes"] if checkpoint else dict.fromkeys((*KINDS, SKIPPED_KIND), 0)
        self._counts = Counts(**checkpoint["counts"]) if checkpoint else Counts()
        self._files = {kind: GrowingFile(growing_file(folder, number, kind), size) for kind, size in sizes.items()}
        self._batch: list[tuple[Document | TokenDocument, InputFile]] = []
        self._batch_characters = 0

    def add(self, record: Record, file: InputFile) -> None:
        if isinstance(record, Skipped):
            self._skip(record, file)
            return
        self._batch.append((record, file))
        if isinstance(record, Document):
            self._batch_characters += len(record.text)
        else:
            self._batch_characters += _CHARACTERS_PER_TOKEN * len(record.ids)
        if self._batch_characters >= _BATCH_CHARACTERS:
            self._flush()

    def checkpoint(self, place: dict[str, Any]) -> None:
        """Put everything so far on the disk, and `place` with it: how far the input has been read."""
        self._flush()
        sizes = {kind: file.sync() for kind, file in self._files.items()}
        write_json(
            checkpoint_file(self._folder, self._number), {**place, "sizes": sizes, "counts": asdict(self._counts)}
        )

    def commit(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Give the files their names and write the shard's record, which says that it is finished."""
        self._flush()
        skipped = self._files.pop(SKIPPED_KIND)
        skipped.commit(skipped_file(self._folder, self._number))
        counts = asdict(self._counts)
        record = {
            **counts,
            "skipped": dict(sorted(counts["skipped"].items())),
            "files": {
                kind: file.commit(self._folder / shard_file(self._number, kind)) for kind, file in self._files.items()
            },
            "inputs": inputs,
        }
        sync_folder(self._folder)
        write_json(record_file(self._folder, self._number), record)
        checkpoint_file(self._folder, self._number).unlink(missing_ok=True)
        return record

    def close(self) -> None:
        """Leave the files as they are, for another writer."""
        for file in self._files.values():
            file.close()

    def _skip(self, record: Skipped, file: InputFile) -> None:
        skipped = self._counts.skipped
        skipped[record.reason] = skipped.get(record.reason, 0) + 1
        if record.reason == FILTERED:
            return  # chosen by the user: counted, not listed
        entry = {"input": file.number, "line": record.line, "reason": record.reason, "detail": record.detail}
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        self._files[SKIPPED_KIND].write(line.encode("utf-8", "backslashreplace"))

    def _flush(self) -> None:
        batch, self._batch, self._batch_characters = self._batch, [], 0
        texts = iter(self._encode([record.text for record, _ in batch if isinstance(record, Document)]))
        ends: list[int] = []
        table: list[tuple[int, int, int]] = []
        hashes: list[bytes] = []
        for record, file in batch:
            if isinstance(record, Document):
                found, mask, data, text_bytes = next(texts), None, record.utf8, len(record.utf8)
                ids = found if isinstance(found, np.ndarray) else Skipped(record.line, FAILED, found)
            else:
                ids, mask = plain_tokens(record, self._tokenizer.info)
                data, text_bytes = b"" if isinstance(ids, Skipped) else ids.astype("<u4").tobytes(), 0
            if not isinstance(ids, Skipped) and not len(ids):  # the tokenizer's normalizer left nothing
                ids = Skipped(record.line, EMPTY, "no token is left of it")
            if isinstance(ids, Skipped):
                self._skip(ids, file)
                continue
            self._files["tokens"].write(ids.data)
            self._write_mask(mask, len(ids))
            self._counts.tokens += len(ids)
            ends.append(self._counts.tokens)
            table.append((file.number, record.line, text_bytes))
            hashes.append(hashlib.blake2b(data, digest_size=8).digest())
        self._files["ends"].write(np.array(ends, dtype="<u8").tobytes())
        self._files["table"].write(np.array(table, dtype="<i8").tobytes())
        self._files["hashes"].write(b"".join(hashes))
        self._counts.documents += len(ends)
        self._counts.text_bytes += sum(entry[2] for entry in table)

    def _write_mask(self, mask: np.ndarray | None, num_tokens: int) -> None:
        """The next document's mask; the shard's first makes the file, with 1 for every token before."""
        if mask is None and MASK not in self._files:
            return
        if MASK not in self._files:
            self._files[MASK] = GrowingFile(growing_file(self._folder, self._number, MASK))
            self._files[MASK].write(np.ones(self._counts.tokens, dtype=np.uint8).data)
        self._files[MASK].write((np.ones(num_tokens, dtype=np.uint8) if mask is None else mask.astype(np.uint8)).data)

    def _encode(self, texts: list[str]) -> list[np.ndarray | str]:
        """The ids of each text, or what kept the tokenizer from giving them."""
        try:
            return list(self._tokenizer.encode(texts))
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException:  # Rust code that panics raises no plain Exception
            return [self._encode_alone(text) for text in texts]

    def _encode_alone(self, text: str) -> np.ndarray | str:
        try:
            return self._tokenizer.encode([text])[0]
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:
            return str(error)[:_DETAIL_CHARACTERS] or type(error).__name__


def record_file(folder: Path, number: int) -> Path:
    """Written last: the shard is finished."""
    return folder / PARTS / f"{number:05d}.json"


def checkpoint_file(folder: Path, number: int) -> Path:
    return folder / PARTS / f"{number:05d}.checkpoint.json"


def skipped_file(folder: Path, number: int) -> Path:
    return folder / PARTS / f"{number:05d}.skipped.jsonl"


def growing_file(folder: Path, number: int, kind: str) -> Path:
    return folder / PARTS / f"{number:05d}.{kind}.growing"
