from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel, Trainer, TrainingArguments

import anchorcontext
from anchorcontext import AnchorCollator, WindowLayout
from anchorcontext.data.windows import Window
from tests.models.tiny import tiny_model
from tests.workers import run_on

ANCHOR, END = 1, 2


def packed_item(seed: int, lengths: tuple[int, ...] = (9, 14, 5), rows: int = 32) -> dict[str, Any]:
    ids = torch.randint(3, 131, (rows,), generator=torch.Generator().manual_seed(seed))
    layout = WindowLayout(lengths, num_rows=rows)
    ids[torch.from_numpy(layout.piece_offsets)] = ANCHOR
    ids[sum(lengths) :] = ANCHOR
    return {"input_ids": ids.tolist(), "piece_lengths": list(lengths)}


def layout_of(items: list[dict[str, Any]]) -> tuple[Tensor, WindowLayout]:
    ids = torch.tensor([token for item in items for token in item["input_ids"]])
    windows = [WindowLayout(item["piece_lengths"], num_rows=len(item["input_ids"])) for item in items]
    return ids, WindowLayout.concatenate(windows)


def test_packed_items_stand_behind_one_another() -> None:
    items = [packed_item(0), packed_item(1, (20, 3), 25)]
    ids, layout = layout_of(items)
    batch = AnchorCollator()(items)
    assert list(batch) == ["input_ids", "position_ids", "labels", "shift_labels", "attention_context"]
    assert torch.equal(batch["input_ids"], ids[None])
    assert torch.equal(batch["position_ids"], layout.position_ids[None])
    assert torch.equal(batch["shift_labels"], layout.shift_labels(ids)[None])
    assert batch["attention_context"].plan.num_rows == 57


def test_labels_shifted_by_a_loss_are_the_shift_labels() -> None:
    """Interleaved too, where a row's target is not the next row."""
    item = packed_item(0, (6, 8, 7, 9), 30) | {"document_ids": [0, 1, 0, 1]}
    batch = AnchorCollator()([item, item])
    assert torch.equal(batch["labels"][:, 1:], batch["shift_labels"][:, :-1])
    assert int(batch["labels"][0, 0]) == int(batch["shift_labels"][0, -1]) == -100


def test_windows_and_mappings_are_the_same() -> None:
    item = packed_item(3)
    window = Window(
        input_ids=torch.tensor(item["input_ids"]),
        piece_lengths=item["piece_lengths"],
        document_ids=[7, 8, 7],
        starts=[True, False, False],
        ends=[True, True, True],
        prefix_lengths=[1, 1, 1],
        piece_sources=[0, 0, 0],
        loss_mask=torch.arange(32) % 3 > 0,
    )
    mapping = item | {
        "document_ids": window.document_ids,
        "starts": window.starts,
        "prefix_lengths": window.prefix_lengths,
        "loss_mask": window.loss_mask.tolist(),
    }
    for arm in ("anchor", "full"):
        ours, theirs = (AnchorCollator(arm=arm)([one]) for one in (window, mapping))
        assert ours["attention_context"].plan == theirs["attention_context"].plan
        for key in ("input_ids", "position_ids", "labels", "shift_labels"):
            assert torch.equal(ours[key], theirs[key])


def test_documents_are_headed_and_ended() -> None:
    documents = [{"input_ids": [5, 6, 7]}, {"input_ids": [ANCHOR, 8, END]}, {"input_ids": []}]
    batch = AnchorCollator(anchor_id=ANCHOR, end_id=END)(documents)
    assert batch["input_ids"].tolist() == [[1, 5, 6, 7, 2, 1, 8, 2, 1, 2]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 0, 1]]
    assert batch["shift_labels"].tolist() == [[5, 6, 7, 2, -100, 8, 2, -100, 2, -100]]


def test_masked_tokens_are_not_learned() -> None:
    collate = AnchorCollator(anchor_id=ANCHOR)
    ids = [5, 6, 7, 8]
    expected = [[-100, 6, -100, 8, -100]]
    for masked in ({"loss_mask": [0, 1, 0, 1]}, {"labels": [-100, 6, -100, 8]}):
        item = {"input_ids": ids, "attention_mask": [1, 1, 1, 1], **masked}
        assert collate([item])["shift_labels"].tolist() == expected


@pytest.mark.parametrize(
    ("options", "item", "says"),
    [
        ({}, {"input_ids": [1, 5]}, "no piece_lengths.*remove_unused_columns=False"),
        ({"anchor_id": 1}, {"input_ids": [1, 5], "piece_lengths": [2]}, "items are single documents"),
        ({"anchor_id": 1}, {"input_ids": [5, 6], "attention_mask": [1, 0]}, "attention_mask has zeros"),
        ({"anchor_id": 1}, {"input_ids": [5, 6], "labels": [6, -100]}, "give them unshifted"),
        ({"anchor_id": 1}, {"input_ids": [5, 6], "loss_mask": [1]}, "1 loss_mask for 2 input_ids"),
        ({}, {"input_ids": [1, 5], "piece_lengths": [3]}, "num_rows=2 is less than the 3 rows"),
    ],
)
def test_items_that_are_refused(options: dict[str, Any], item: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        AnchorCollator(**options)([item])


def test_options_that_are_refused() -> None:
    with pytest.raises(ValueError, match="end_id is for items that are documents"):
        AnchorCollator(end_id=2)
    with pytest.raises(ValueError, match="at least one item"):
        AnchorCollator()([])


# With Hugging Face Trainer and an own loop.


def trained_model() -> PreTrainedModel:
    anchorcontext.register()
    return tiny_model(attn="anchor").train()


ITEMS = [packed_item(seed, (9, 14, 5 + seed), 40) for seed in range(8)]


def losses_of_an_own_loop(steps: int, items_per_step: int) -> tuple[list[float], PreTrainedModel]:
    """Sum of losses over all labels of a step / their number, plain SGD."""
    model = trained_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        batch = AnchorCollator()(ITEMS[step * items_per_step : (step + 1) * items_per_step])
        labels = batch.pop("shift_labels")
        batch.pop("labels")
        logits = model(**batch, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[0], labels[0], ignore_index=-100)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("checkpointing", "workers"), [(False, 0), (True, 0), (False, 1)])
def test_trainer_trains_as_an_own_loop_does(tmp_path: Path, checkpointing: bool, workers: int) -> None:
    """Two accumulated micro-batches a step, of unequal label counts."""
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=2,
        learning_rate=0.1,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        dataloader_num_workers=workers,
        gradient_checkpointing=checkpointing,
        use_cpu=True,
        disable_tqdm=True,
        train_sampling_strategy="sequential",
    )
    model = trained_model()
    trainer = Trainer(model=model, args=arguments, train_dataset=ITEMS, data_collator=AnchorCollator())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    expected, own_model = losses_of_an_own_loop(steps=2, items_per_step=4)
    assert losses == pytest.approx(expected, abs=2e-4)
    for ours, own in zip(model.parameters(), own_model.parameters(), strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-6)
    evaluated = trainer.evaluate(ITEMS[:2])["eval_loss"]
    assert evaluated == pytest.approx(mean_loss(own_model, ITEMS[:2]), rel=1e-4)


@torch.no_grad()
def mean_loss(model: PreTrainedModel, items: list[dict[str, Any]]) -> float:
    batch = AnchorCollator()(items)
    labels = batch.pop("shift_labels")
    batch.pop("labels")
    logits = model.eval()(**batch).logits
    return torch.nn.functional.cross_entropy(logits[0], labels[0], ignore_index=-100).item()


def part_of_the_loss() -> tuple[Tensor, float, int, str]:
    group = dist.group.WORLD
    batch = AnchorCollator(group=group, policy="zigzag", head_groups=2)(ITEMS[:2])
    assert batch["attention_context"].head_groups == 2
    with pytest.raises(ValueError, match="max_gathered_rows=1: of all plans"):
        AnchorCollator(group=group, policy="zigzag", max_gathered_rows=1)(ITEMS[:2])
    with pytest.raises(TypeError, match="num_workers=0"):
        pickle.dumps(batch)
    labels = batch.pop("shift_labels")
    batch.pop("labels")
    logits = trained_model()(**batch, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits[0], labels[0], ignore_index=-100, reduction="sum")
    return batch["input_ids"], loss.item(), int((labels != -100).sum()), batch["attention_context"].plan.digest


def test_ranks_share_a_batch() -> None:
    results = run_on(2, part_of_the_loss)
    assert [result[0].shape for result in results] == [(1, 40), (1, 40)]
    assert results[0][3] == results[1][3]
    loss = sum(result[1] for result in results) / sum(result[2] for result in results)
    assert loss == pytest.approx(mean_loss(trained_model(), ITEMS[:2]), rel=1e-5)
