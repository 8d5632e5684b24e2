"""Which queries see which keys: all that a kernel knows about documents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np


@dataclass(frozen=True, eq=False)
class Segments:
    """Runs of neighbouring queries, each with one run of neighbouring keys.

    Segment i is queries [query_starts[i], +query_lengths[i]) over keys [key_starts[i],
    +key_lengths[i]). Query runs are disjoint; key runs may overlap, since two runs of one document
    share its earlier keys. Queries of no segment see nothing.

    Causal segments are aligned bottom-right: a segment of m queries and n >= m keys is the last m
    rows of n, so its query j sees keys [0, n - m + j]. Other segments see all their keys.
    """

    query_starts: np.ndarray
    query_lengths: np.ndarray
    key_starts: np.ndarray
    key_lengths: np.ndarray
    causal: bool = True

    def __len__(self) -> int:
        return len(self.query_starts)

    @cached_property
    def runs(self) -> list[tuple[slice, slice]]:
        """The query rows and key rows of each segment."""
        bounds = zip(
            self.query_starts.tolist(),
            (self.query_starts + self.query_lengths).tolist(),
            self.key_starts.tolist(),
            (self.key_starts + self.key_lengths).tolist(),
            strict=True,
        )
        return [(slice(first, last), slice(key, key_end)) for first, last, key, key_end in bounds]

    @cached_property
    def parts(self) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int, int, int]]]:
        """The segments as squares and rectangles, for kernels that align causal masks top-left.

        Each part is (first query, queries, first key, keys). The first list is causal, queries over
        as many keys, their own rows; in the second, queries see all of their keys. A single query
        sees all of its keys.
        """
        squares = np.where(self.query_lengths > 1, self.query_lengths, 0) if self.causal else 0 * self.query_lengths
        earlier = self.key_lengths - squares
        return (
            _parts(squares > 0, self.query_starts, self.query_lengths, self.key_starts + earlier, squares),
            _parts(earlier > 0, self.query_starts, self.query_lengths, self.key_starts, earlier),
        )


def _parts(chosen: np.ndarray, *columns: np.ndarray) -> list[tuple[int, int, int, int]]:
    return list(zip(*(column[chosen].tolist() for column in columns), strict=True))


@lru_cache(maxsize=64)
def single_segment(num_queries: int, num_keys: int) -> Segments:
    """Causal attention of the last `num_queries` of `num_keys` rows."""
    return Segments(
        query_starts=np.array([0]),
        query_lengths=np.array([num_queries]),
        key_starts=np.array([0]),
        key_lengths=np.array([num_keys]),
    )
