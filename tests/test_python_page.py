"""The Python of docs/python.md runs as it is printed, on tiny data and a tiny model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from anchorcontext.config.schema import TrainConfig
from tests.data_prep.corpus import byte_tokenizer, write_jsonl
from tests.models.tiny import tiny_model

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main, others = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "books.jsonl", [{"text": f"book {number} " * 9} for number in range(60)])
    byte_tokenizer(tmp_path / "tokenizer")
    tiny_model(vocab_size=300, bos_token_id=0, eos_token_id=1).save_pretrained(tmp_path / "model")
    byte_tokenizer(tmp_path / "model")
    trained: list[Any] = []
    monkeypatch.setattr("anchorcontext.train.loop.train", trained.append)  # tested in tests/train
    names: dict[str, Any] = {}
    exec(main, names)
    exec(others, names)
    (config,) = trained
    assert isinstance(config, TrainConfig)
    assert config.optim.lr == 1e-4
    assert "Loss by position: base" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert (tmp_path / "dataset" / "export.json").is_file()
    assert names["window"].positions[0] == 0
