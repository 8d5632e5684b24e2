from __future__ import annotations

import numpy as np
import pytest

from anchorcontext.data.length_mixes import MIXES, WEB_HISTOGRAM, sample_window

GOLDEN = {
    "web": [607, 51, 1928, 844, 978, 1026],
    "long": [208, 1928, 1493, 1026, 83, 1491],
    "8K": [9314, 6306, 4431, 4231, 10759, 11574],
}


@pytest.mark.parametrize("mix", MIXES)
def test_a_window_is_full_and_the_same_each_time(mix: str) -> None:
    for seed in range(5):
        lengths = sample_window(mix, 65536, seed)
        assert sum(lengths) == 65536
        assert min(lengths) >= 1
        assert lengths == sample_window(mix, 65536, seed)
    assert sample_window(mix, 7, 0) == [7] or mix == "web"


def test_golden_windows() -> None:
    """Figures that are published for a seed stay those of that seed."""
    assert sample_window("web", 65536, 0)[:6] == GOLDEN["web"]
    assert sample_window("long", 65536, 0)[:6] == GOLDEN["long"]
    assert sample_window("8K", 65536, 0)[:6] == GOLDEN["8K"]


def test_web_follows_its_histogram() -> None:
    lengths = np.concatenate([sample_window("web", 2**20, seed)[:-1] for seed in range(20)])
    total = sum(count for _, _, count in WEB_HISTOGRAM)
    for low, high, count in WEB_HISTOGRAM[3:10]:
        share = np.mean((lengths >= low) & (lengths <= high))
        assert share == pytest.approx(count / total, abs=4 * (count / total / len(lengths)) ** 0.5 + 1e-3)


def test_caps_and_ranges() -> None:
    web = [length for seed in range(40) for length in sample_window("web", 32768, seed)]
    assert max(web) == 8192
    long = np.concatenate([sample_window("long", 2**20, seed)[:-1] for seed in range(20)])
    assert not np.any((long > 16384) & (long < 32768))
    assert np.mean(long >= 32768) == pytest.approx(0.012, abs=0.004)
    eight = np.concatenate([sample_window("8K", 2**20, seed)[:-1] for seed in range(10)])
    assert eight.min() >= 4096
    assert eight.max() <= 12288
    assert sample_window("one_document", 1000, 3) == [1000]


def test_unknown_mix() -> None:
    with pytest.raises(ValueError, match="mix='books' is not one of web, long, 8K, one_document"):
        sample_window("books", 10, 0)
