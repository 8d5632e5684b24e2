"""How the shards beside this file were written, by mosaicml-streaming 0.13.0: `python write.py FOLDER`.

The package is no dependency of the project; install it in an environment of its own.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np


def sample(number: int) -> dict[str, Any]:
    """A sample as ProLong's data have them (ids, bounds of documents, domain), a mask, and every other encoding."""
    ids = np.arange(number * 100, number * 100 + 5 + number, dtype=np.uint32)
    return {
        "input_ids": ids,
        "indices": np.array([[0, 2], [2, 5 + number]], np.uint32),
        "domain": "book" if number % 2 else "web",
        "mask": (ids % 2).astype(np.uint8),
        "length": 5 + number,
        "meta": {"n": number},
        "free": np.arange(number + 1, dtype=np.int64),
        "fixed": np.array([[1, 2], [3, number]], np.int16),
        "scalar": number / 2,
    }


COLUMNS = {
    "input_ids": "ndarray:uint32",
    "indices": "ndarray:uint32",
    "domain": "str",
    "mask": "ndarray:uint8",
    "length": "int",
    "meta": "json",
    "free": "ndarray",
    "fixed": "ndarray:int16:2,2",
    "scalar": "float32",
}


def write(folder: str) -> None:
    """Four samples in shards as small as one, and three texts in a compressed shard."""
    writer = importlib.import_module("streaming").MDSWriter
    with writer(out=f"{folder}/plain", columns=COLUMNS, size_limit=400) as out:
        for number in range(4):
            out.write(sample(number))
    with writer(out=f"{folder}/packed", columns={"text": "str"}, compression="zstd:7") as out:
        for number in range(3):
            out.write({"text": f"sample {number} caf\u00e9"})


if __name__ == "__main__":
    write(sys.argv[1])
