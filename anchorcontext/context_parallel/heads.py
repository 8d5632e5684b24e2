"""Which heads each rank computes where ranks divide a window by heads (`ulysses`)."""

from __future__ import annotations


def key_heads_of(rank: int, ranks: int, query_heads: int, key_heads: int) -> list[int]:
    """The key heads that a rank's query heads read, in order: rank r has query heads [r * m, (r + 1) * m).

    m = query_heads / ranks. Where the ranks do not divide the key heads, a key head goes to several
    ranks; where a rank's query heads would share its key heads unevenly, each query head gets its
    own copy.

    Raises:
        ValueError: query heads that cannot be divided evenly.
    """
    if query_heads % ranks:
        raise ValueError(
            f"exchange='ulysses' cannot share {query_heads} query heads evenly among {ranks} ranks: choose gather or "
            "ring, or a number of ranks that divides the heads"
        )
    own = query_heads // ranks
    group = query_heads // key_heads
    read = [head // group for head in range(rank * own, (rank + 1) * own)]
    even = own % group == 0 or group % own == 0
    return sorted(set(read)) if even else read


def rows_of_heads(rows: int, ranks: int, query_heads: int, key_heads: int) -> int:
    """What a rank receives in a forward pass of `ulysses`, counted in rows of keys and values.

    Args:
        rows: every rank's rows of the window.
    """
    own = -(-query_heads // ranks)
    divides = query_heads % ranks == 0
    keys = len(key_heads_of(0, ranks, query_heads, key_heads)) if divides else min(own, key_heads)
    return -(-(ranks - 1) * rows * (own + keys) // key_heads)
