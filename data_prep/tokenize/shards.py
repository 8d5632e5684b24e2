"""One unit of work: input files -> one shard of the token store.

A unit depends on its input files alone, so its bytes are the same whoever writes them, and a shard
that is finished is never written again. Its record, written last, says that it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_prep.disk import CheckedFile, read_json, sync_folder, write_file, write_json
from data_prep.errors import DataError
from data_prep.read import EMPTY, FILTERED, Document, InputFile, Skipped, Source, open_records
from data_prep.store import KINDS, shard_file
from data_prep.tokenize.tokenizer import DocumentTokenizer

PARTS = "parts"
_BATCH_CHARACTERS = 1 << 20
_UNIT_BYTES = 16 << 20


@dataclass(frozen=True)
class Unit:
    """Files that make one shard. Cutting a large file into units by bytes belongs here too."""

    number: int
    files: tuple[InputFile, ...]

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)


def plan_units(files: Sequence[InputFile], unit_bytes: int = _UNIT_BYTES) -> list[Unit]:
    """Group files, in order, until each group holds `unit_bytes` on disk; a larger file stands alone."""
    groups: list[list[InputFile]] = []
    room = 0
    for file in files:
        if not groups or file.num_bytes > room:
            groups.append([])
            room = unit_bytes
        groups[-1].append(file)
        room -= file.num_bytes
    return [Unit(number, tuple(group)) for number, group in enumerate(groups)]


def finished_record(folder: Path, unit: Unit) -> dict[str, Any] | None:
    """The record of a unit whose shard is on the disk already, else None."""
    path = folder / PARTS / f"{unit.number:05d}.json"
    return read_json(path) if path.is_file() else None


def write_shard(
    source: Source,
    tokenizer: DocumentTokenizer,
    unit: Unit,
    folder: Path,
    on_bytes: Callable[[int], None],
) -> dict[str, Any]:
    """Tokenize a unit's files into shard `unit.number` of the store in `folder`.

    Returns:
        The unit's record: counts, reasons of skipping, checksums and the files as they were read.

    Raises:
        DataError: a file that cannot be read to its end, or that changed under way.
    """
    writer = _ShardWriter(folder, unit.number, tokenizer)
    inputs = []
    try:
        for file in unit.files:
            with open_records(file, source, on_bytes) as records:
                for record in records:
                    if isinstance(record, Document):
                        writer.add(record, file)
                    elif isinstance(record, Skipped):
                        writer.skip(record, file)
                    else:
                        raise DataError(f"{file.path} holds tokens and no text: it cannot be read yet")
                sha256 = records.finish()
            inputs.append({**file.identity(), "sha256": sha256})
        return writer.commit(inputs)
    except BaseException:
        writer.discard()
        raise


class _ShardWriter:
    """Gathers documents into batches, tokenizes them and writes the shard's files."""

    def __init__(self, folder: Path, number: int, tokenizer: DocumentTokenizer) -> None:
        self._folder = folder
        self._number = number
        self._tokenizer = tokenizer
        self._files = {kind: CheckedFile(folder / shard_file(number, kind)) for kind in KINDS}
        self._batch: list[tuple[Document, InputFile]] = []
        self._batch_characters = 0
        self._skipped_lines: list[str] = []
        self._skipped: dict[str, int] = {}
        self._num_documents = 0
        self._num_tokens = 0
        self._text_bytes = 0

    def add(self, document: Document, file: InputFile) -> None:
        self._batch.append((document, file))
        self._batch_characters += len(document.text)
        if self._batch_characters >= _BATCH_CHARACTERS:
            self._flush()

    def skip(self, record: Skipped, file: InputFile) -> None:
        self._skipped[record.reason] = self._skipped.get(record.reason, 0) + 1
        if record.reason == FILTERED:
            return  # chosen by the user: counted, not listed
        where = f"{file.name}:{record.line}" if record.line else file.name
        entry = {"where": where, "reason": record.reason, "detail": record.detail}
        self._skipped_lines.append(json.dumps(entry, ensure_ascii=False) + "\n")

    def commit(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._flush()
        written = {kind: file.commit() for kind, file in self._files.items()}
        sync_folder(self._folder)
        part = self._folder / PARTS / f"{self._number:05d}"
        skipped = "".join(self._skipped_lines).encode("utf-8", "backslashreplace")
        write_file(part.with_suffix(".skipped.jsonl"), skipped)
        record = {
            "documents": self._num_documents,
            "tokens": self._num_tokens,
            "text_bytes": self._text_bytes,
            "skipped": dict(sorted(self._skipped.items())),
            "files": written,
            "inputs": inputs,
        }
        write_json(part.with_suffix(".json"), record)
        return record

    def discard(self) -> None:
        for file in self._files.values():
            with suppress(OSError):
                file.discard()

    def _flush(self) -> None:
        batch, self._batch, self._batch_characters = self._batch, [], 0
        arrays = self._tokenizer.encode([document.text for document, _ in batch])
        lengths, table, hashes = [], [], []
        for (document, file), array in zip(batch, arrays, strict=True):
            if not len(array):  # the tokenizer's normalizer left nothing
                self.skip(Skipped(document.line, EMPTY, "no token is left of its text"), file)
                continue
            self._files["tokens"].write(array.data)
            lengths.append(len(array))
            table.append((file.number, document.line, len(document.utf8)))
            hashes.append(hashlib.blake2b(document.utf8, digest_size=8).digest())
        ends = self._num_tokens + np.cumsum(lengths, dtype=np.uint64)
        self._files["ends"].write(ends.astype("<u8").tobytes())
        self._files["table"].write(np.array(table, dtype="<i8").tobytes())
        self._files["hashes"].write(b"".join(hashes))
        self._num_documents += len(lengths)
        self._num_tokens += sum(lengths)
        self._text_bytes += sum(entry[2] for entry in table)
