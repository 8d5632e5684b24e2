"""Length upsampling: the golden share, and rules that contradict themselves."""

from __future__ import annotations

import numpy as np
import pytest

from data_prep.errors import DataError
from data_prep.mix import LengthRule, keep_short
from data_prep.permutation import seeded_keys


def test_a_long_share_of_three_tenths_becomes_eight() -> None:
    """0.3 / (0.3 + 0.7 * 0.1) = 0.811."""
    lengths = np.concatenate([np.full(3_000, 10_000), np.full(140_000, 500)])
    kept = keep_short(lengths, seeded_keys(len(lengths), "any"), 4096, 0.1)
    long = lengths >= 4096
    assert lengths[long].sum() / lengths.sum() == pytest.approx(0.3)
    assert kept[long].all()
    assert lengths[kept & long].sum() / lengths[kept].sum() == pytest.approx(0.811, abs=0.01)


@pytest.mark.parametrize(("fraction", "kept"), [(0.0, 0), (1.0, 1000)])
def test_none_and_all(fraction: float, kept: int) -> None:
    assert keep_short(np.ones(1000), seeded_keys(1000, "any"), 4096, fraction).sum() == kept


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_document_tokens": 0}, "min_document_tokens=0: a document has at least 1 token"),
        ({"upsample_from_tokens": -1}, "upsample_from_tokens=-1 is less than 0"),
        ({"upsample_from_tokens": 9, "keep_short_fraction": 1.5}, r"keep_short_fraction=1\.5 is not in 0"),
        ({"upsample_from_tokens": 9}, "have an effect only together"),
        ({"keep_short_fraction": 0.5}, "have an effect only together"),
    ],
)
def test_rules_out_of_range(values: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        LengthRule(**values)  # type: ignore[arg-type]
