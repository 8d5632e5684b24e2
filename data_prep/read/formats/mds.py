"""Shards of mosaicml-streaming (.mds), as ProLong's data come: samples of named, typed columns.

A shard is, little-endian: the number of samples (u4); where each sample begins and the last one
ends (u4 each, from the beginning of the file); a JSON object that describes the columns; the samples. A
sample is the sizes of its columns of variable size (u4 each), then the columns' bytes.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from data_prep.errors import DataError
from data_prep.read.documents import Row, Skipped
from data_prep.read.source import InputFile, Source

# ndarray: codes of dtypes that are stored with the values, and of the shape's own dtype.
_DTYPES = {
    8: "u1", 9: "i1", 16: "<u2", 17: "<i2", 18: "<f2", 32: "<u4", 33: "<i4", 34: "<f4", 64: "<u8", 65: "<i8", 66: "<f8"
}  # fmt: skip
_SHAPE_DTYPES = ("u1", "<u2", "<u4", "<u8")
_MAX_SAMPLES = 1 << 28


def read_mds(stream: BinaryIO, file: InputFile, source: Source) -> Iterator[Row | Skipped]:
    """A record per sample, numbered from 1, with only the columns that the source wants."""
    try:
        offsets, columns = _header(stream)
        wanted = set(source.wanted_fields())
        for number, (begin, end) in enumerate(itertools.pairwise(offsets), start=1):
            sample = _exactly(stream, end - begin)
            yield Row(number, _decode(sample, columns, wanted))
        if stream.read(1):
            raise ValueError("more bytes than samples")
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(f"{file.path} is not a sound MDS shard ({error}). Copy it again") from error


def _header(stream: BinaryIO) -> tuple[list[int], list[tuple[str, str, int | None]]]:
    """Where samples begin, and (name, encoding, fixed size) of each column."""
    num_samples = int.from_bytes(_exactly(stream, 4), "little")
    if num_samples > _MAX_SAMPLES:
        raise ValueError(f"{num_samples} samples")
    begin = 4 + 4 * (num_samples + 1)
    offsets = np.frombuffer(_exactly(stream, begin - 4), dtype="<u4").tolist()
    if offsets[0] < begin or any(end < start for start, end in itertools.pairwise(offsets)):
        raise ValueError("its samples overlap")
    config = json.loads(_exactly(stream, offsets[0] - begin))
    names, encodings, sizes = (config[f"column_{part}"] for part in ("names", "encodings", "sizes"))
    return offsets, list(zip(names, encodings, sizes, strict=True))


def _decode(sample: bytes, columns: list[tuple[str, str, int | None]], wanted: set[str]) -> dict[str, Any]:
    num_variable = sum(size is None for _, _, size in columns)
    variable = iter(np.frombuffer(sample[: 4 * num_variable], dtype="<u4").tolist())
    at = 4 * num_variable
    fields: dict[str, Any] = {}
    for name, encoding, fixed in columns:
        size = next(variable) if fixed is None else fixed
        data = sample[at : at + size]
        at += size
        if len(data) != size:
            raise ValueError("a sample is shorter than its columns")
        fields[name] = _value(data, encoding) if name in wanted else None
    if at != len(sample):
        raise ValueError("a sample is longer than its columns")
    return fields


def _value(data: bytes, encoding: str) -> Any:
    """One column of a sample. Text stays bytes, which may not be UTF-8."""
    kind, _, options = encoding.partition(":")
    if kind in ("str", "bytes", "str_int", "str_float", "str_decimal"):
        return data
    if kind == "json":
        return json.loads(data)
    if kind == "ndarray":
        return _ndarray(data, *options.split(":")) if options else _ndarray(data)
    try:
        return np.frombuffer(data, np.dtype("int64" if kind == "int" else kind).newbyteorder("<"))[0].item()
    except TypeError:
        raise ValueError(f"a column of encoding {encoding!r}, which is not read") from None


def _ndarray(data: bytes, dtype: str = "", shape: str = "") -> np.ndarray:
    """An array whose dtype and shape are fixed by the column or stored before the values."""
    at = 0
    if dtype:
        value_dtype = np.dtype(dtype).newbyteorder("<")
    else:
        value_dtype, at = np.dtype(_DTYPES[data[0]]), 1
    if shape:
        dimensions = [int(part) for part in shape.split(",")]
    else:
        num_dimensions, shape_dtype = data[at] >> 2, np.dtype(_SHAPE_DTYPES[data[at] & 3])
        end = at + 1 + num_dimensions * shape_dtype.itemsize
        dimensions, at = np.frombuffer(data[at + 1 : end], shape_dtype).tolist(), end
    if len(data) - at != math.prod(dimensions) * value_dtype.itemsize:
        raise ValueError("an array of another size than its shape")
    return np.frombuffer(data, value_dtype, offset=at).reshape(dimensions)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise ValueError("it is cut short")
    return data
