"""Mixtures, upsampling, tags and policies that contradict the sources, each named with its key."""

from pathlib import Path

from anchorcontext.config.check import problems
from anchorcontext.config.schema import DataConfig, PackConfig, SourceConfig


def _config(folder: Path, **data: object) -> PackConfig:
    here = str(folder)
    (folder / "tokenizer.json").touch()
    sources = {"books": SourceConfig(path=here), "web": SourceConfig(path=here)}
    return PackConfig(
        data=DataConfig(sources=sources, tokenizer=here, store=here, index=here, window_tokens=64, **data)  # type: ignore[arg-type]
    )


def _found(config: PackConfig) -> dict[str, str]:
    return {problem.key: problem.fix for problem in problems(config)}


def test_a_whole_mixture_has_no_problem(tmp_path: Path) -> None:
    assert _found(_config(tmp_path)) == {}
    config = _config(tmp_path, mixture={"books": 3, "web": 0}, total_tokens=10, exhausted="repeat")
    config.data.sources["web"] = SourceConfig(
        path=str(tmp_path), min_document_tokens=5, upsample_from_tokens=10, keep_short_fraction=0.0
    )
    config.data.domain_tags = {"web": "<web>"}
    assert _found(config) == {}


def test_every_problem_of_a_mixture(tmp_path: Path) -> None:
    config = _config(tmp_path, mixture={"book": 1.0, "web": -2.0}, exhausted="repeat", domain_tags={"code": "<c>"})
    found = _found(config)
    assert found["data.mixture.book"] == "no such source: choose from books, web"
    assert "needs a weight for every source" in found["data.mixture.books"]
    assert found["data.mixture.web"] == "must be at least 0"
    assert "needs data.total_tokens" in found["data.exhausted"]
    assert found["data.domain_tags.code"] == "no such source: choose from books, web"
    assert "above 0" in _found(_config(tmp_path, mixture={"books": 0.0, "web": 0.0}))["data.mixture"]


def test_every_problem_of_lengths_and_policies(tmp_path: Path) -> None:
    config = _config(
        tmp_path, algorithm="one_document", last_windows="drop", long_documents="cut", min_document_tokens=0
    )
    config.data.sources["web"] = SourceConfig(
        path=str(tmp_path), min_document_tokens=0, upsample_from_tokens=10, keep_short_fraction=1.5
    )
    found = _found(config)
    assert "has no effect" in found["data.last_windows"]
    assert found["data.long_documents"] == "choose from split, head, drop"
    for key in ("data.min_document_tokens", "data.sources.web.min_document_tokens"):
        assert found[key].startswith("must be at least 1 and at most")
    assert found["data.sources.web.keep_short_fraction"] == "must be at least 0 and at most 1"
    assert "only together" in found["data.sources.web.upsample_from_tokens"]


def test_numbers_that_no_file_could_hold_and_a_path_of_nothing(tmp_path: Path) -> None:
    config = _config(tmp_path, seed=2**64, interleave_chunk_tokens=2**32)
    config.data.window_tokens = 2**32
    config.data.sources["web"] = SourceConfig(path="")
    assert set(_found(config)) == {
        "data.seed",
        "data.interleave_chunk_tokens",
        "data.window_tokens",
        "data.sources.web.path",
    }
