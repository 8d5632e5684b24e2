"""Tables in columns, of which only the wanted ones are read: Parquet, and Arrow (as `datasets` writes it)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from data_prep.errors import DataError
from data_prep.read.documents import NO_TEXT_FIELD, NO_TOKEN_FIELD, Row, Skipped, lacking
from data_prep.read.source import InputFile, Source

_BATCH_ROWS = 64
_BUFFER_BYTES = 1 << 20
_ARROW_FILE = b"ARROW1"
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"

OnShare = Callable[[float], None]
"""Told which share of the file has been read."""


def read_parquet(path: str, file: InputFile, source: Source, on_share: OnShare) -> Iterator[Row | Skipped]:
    """A record per row, numbered from 1, of the row groups that begin in the file's span."""
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES)
    edges = row_group_starts(table)
    groups = [number for number, edge in enumerate(edges) if file.span is None or file.span[0] <= edge < file.span[1]]
    names = table.schema_arrow.names
    wanted = [name for name in source.wanted_fields() if name in names]
    num_rows = sum(table.metadata.row_group(group).num_rows for group in groups)
    if (absent := _absent(source, names)) is not None:
        yield from (lacking(line, absent, dict.fromkeys(names)) for line in range(1, num_rows + 1))
        return
    line = 0
    for batch in table.iter_batches(_BATCH_ROWS, row_groups=groups, columns=wanted):
        for fields in _rows(batch):
            line += 1
            yield Row(line, fields)
        on_share(line / num_rows)
    if line != num_rows:
        raise DataError(f"{path} holds {line} rows where it says {num_rows}: copy it again")


def row_group_starts(table: Any) -> list[int]:
    """Where each row group of a `ParquetFile` begins, in bytes from the beginning of the file; the first at 0."""
    starts = []
    for number in range(table.num_row_groups):
        group = table.metadata.row_group(number)
        chunks = [group.column(index) for index in range(group.num_columns)]
        offsets = [
            min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset) for chunk in chunks
        ]
        starts.append(min(offsets, default=0))
    return [0, *starts[1:]] if starts else []


def read_arrow(path: str, file: InputFile, source: Source, on_share: OnShare) -> Iterator[Row | Skipped]:
    """A record per row, numbered from 1, of an Arrow stream or Arrow file.

    One record batch is in memory at a time. The file is not memory-mapped: if another process truncates
    it meanwhile, a read fails with an error that can be reported, but access to a map kills the process.
    """
    import pyarrow

    with pyarrow.OSFile(path) as opened:
        is_file = opened.read(len(_ARROW_FILE)) == _ARROW_FILE
        opened.seek(max(opened.size() - len(_STREAM_END), 0))
        if not is_file and opened.read() != _STREAM_END:  # the library accepts a stream that breaks off
            raise DataError(f"{path} is cut short: the Arrow stream does not end. Copy it again")
        names = _reader(opened, is_file, []).schema.names
        absent = _absent(source, names)
        wanted = [name for name in source.wanted_fields() if name in names]
        table = _reader(opened, is_file, [names.index(name) for name in wanted] or [0] * bool(names))
        line = 0
        for batch, share in _batches(table, opened, is_file):
            if absent is not None:
                yield from (lacking(line + 1 + row, absent, dict.fromkeys(names)) for row in range(batch.num_rows))
                line += batch.num_rows
                continue
            for begin in range(0, batch.num_rows, _BATCH_ROWS):
                for fields in _rows(batch.select(wanted).slice(begin, _BATCH_ROWS)):
                    line += 1
                    yield Row(line, fields)
            on_share(share)


def _reader(opened: Any, is_file: bool, columns: list[int]) -> Any:
    """A reader of these columns, from the beginning; of all where none is given."""
    import pyarrow

    opened.seek(0)
    options = pyarrow.ipc.IpcReadOptions(included_fields=columns)
    return (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(opened, options=options)


def _batches(table: Any, opened: Any, is_file: bool) -> Iterator[tuple[Any, float]]:
    """Record batches, each with the share of the file that is read with it."""
    if is_file:
        total = table.num_record_batches
        yield from ((table.get_batch(number), (number + 1) / total) for number in range(total))
        return
    size = opened.size()
    while True:
        try:
            yield table.read_next_batch(), opened.tell() / size
        except StopIteration:
            return


def _absent(source: Source, names: list[str]) -> str | None:
    """The reason why no row can be a document, if the main column is not there."""
    if source.token_field is not None:
        return None if source.token_field in names else NO_TOKEN_FIELD
    return None if source.text_field in names else NO_TEXT_FIELD


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    columns = [_values(column) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def _values(column: Any) -> list[Any]:
    """A column's values: text as bytes (it may not be UTF-8), lists of numbers as arrays, others as Python has them."""
    import pyarrow

    kinds = pyarrow.types
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        column = column.cast(pyarrow.large_binary())
        column.validate(full=True)  # offsets of a damaged file would be followed anywhere
        return column.to_pylist()
    column.validate(full=True)
    is_list = kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
    if is_list and (kinds.is_integer(kind.value_type) or kinds.is_boolean(kind.value_type)):
        return [_array(scalar) for scalar in column]
    return column.to_pylist()


def _array(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    return scalar.values.to_numpy(zero_copy_only=False)  # with a null in it: floats, which are no ids
