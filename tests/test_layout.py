"""WindowLayout against a row-by-row oracle written from the definitions of the loss and the mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anchorcontext.layout import ARMS, IGNORED_LABEL, WindowLayout


@dataclass
class Row:
    """One row, described without any arithmetic on offsets."""

    document: int
    piece: int
    is_prefix: bool
    is_anchor: bool
    starts: bool
    shared_copy: bool  # an anchor of a document's first piece


def rows_of(lengths, prefixes, documents, starts):
    rows, seen = [], set()
    for piece, (length, prefix, document) in enumerate(zip(lengths, prefixes, documents, strict=True)):
        for index in range(length):
            anchor = index == 0 and prefix > 0
            rows.append(Row(document, piece, index < prefix, anchor, starts[piece], anchor and document not in seen))
        seen.add(document)
    return rows


def oracle_mask(rows, arm):
    size = len(rows)
    mask = torch.zeros(size, size, dtype=torch.bool)
    for i in range(size):
        for j in range(i + 1):
            if arm == "full":
                mask[i, j] = True
            elif arm == "anchor" and rows[i].is_anchor:
                mask[i, j] = i == j  # an anchor sees itself alone
            elif rows[i].document == rows[j].document:
                mask[i, j] = arm != "anchor" or not rows[j].is_anchor or rows[j].shared_copy
    return mask


def oracle_positions(rows, arm):
    positions, counts = [], {}
    for index, row in enumerate(rows):
        within = counts.get(row.document, 0)
        counts[row.document] = within + 1
        if arm == "document_reset":
            positions.append(within)
        else:
            positions.append(0 if arm == "anchor" and row.is_anchor else index)
    return positions


def oracle_targets(rows):
    targets = []
    for i, row in enumerate(rows):
        later = [j for j in range(i + 1, len(rows)) if rows[j].document == row.document and not rows[j].is_prefix]
        if row.is_prefix:
            later = [j for j in later if rows[j].piece == row.piece] if row.starts else []
        targets.append(later[0] if later else -1)
    return targets


@st.composite
def pieces(draw):
    count = draw(st.integers(1, 6))
    documents = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    seen, prefixes, starts, lengths = set(), [], [], []
    for document in documents:
        first = document not in seen
        seen.add(document)
        prefixes.append(draw(st.integers(1 if first else 0, 2)))
        starts.append(first and draw(st.booleans()))
        lengths.append(max(1, prefixes[-1]) + draw(st.integers(0, 4)))
    return lengths, prefixes, documents, starts


@pytest.mark.parametrize("arm", ARMS)
@given(pieces=pieces(), padding=st.integers(0, 3))
def test_layout_equals_the_row_by_row_oracle(arm, pieces, padding):
    lengths, prefixes, documents, starts = pieces
    total = sum(lengths) + padding
    layout = WindowLayout(
        lengths, arm=arm, document_ids=documents, starts=starts, prefix_lengths=prefixes, num_rows=total
    )
    rows = rows_of(lengths, prefixes, documents, starts)
    used = len(rows)

    expected = torch.zeros(total, total, dtype=torch.bool)
    expected[:used, :used] = oracle_mask(rows, arm)
    assert torch.equal(layout.dense_mask(), expected)
    assert layout.position_ids.tolist() == oracle_positions(rows, arm) + [0] * padding
    assert layout.target_rows.tolist() == oracle_targets(rows) + [-1] * padding
    assert (layout.segment_ids[used:] == -1).all()
    numbers = layout.segment_ids[:used].unique().tolist()
    assert numbers == list(range(len(numbers)))


def test_labels_are_the_same_for_every_arm_and_never_cross_documents():
    tokens = torch.arange(100, 111)
    labels = [
        WindowLayout([4, 3, 4], arm=arm, starts=[True, True, False]).shift_labels(tokens).tolist() for arm in ARMS
    ]
    assert labels == [[101, 102, 103, -100, 105, 106, -100, -100, 109, 110, -100]] * len(ARMS)


def test_an_interleaved_chunk_predicts_its_documents_next_chunk():
    layout = WindowLayout([3, 3, 3], document_ids=[5, 9, 5], prefix_lengths=[1, 1, 0])
    assert layout.shift_labels(torch.arange(9)).tolist() == [1, 2, 6, 4, 5, -100, 7, 8, -100]
    assert layout.position_ids.tolist() == [0, 1, 2, 0, 4, 5, 6, 7, 8]


def test_no_row_sees_an_anchor_twice():
    layout = WindowLayout([3, 3, 3], document_ids=[5, 9, 5])
    mask = layout.dense_mask()
    assert mask[8].tolist() == [True, True, True, False, False, False, False, True, True]
    assert mask[6].nonzero().flatten().tolist() == [6]


def test_loss_mask_names_the_tokens_to_be_learned():
    layout = WindowLayout([4])
    labels = layout.shift_labels(torch.arange(4), torch.tensor([1, 1, 0, 1]))
    assert labels.tolist() == [1, IGNORED_LABEL, 3, IGNORED_LABEL]


def test_labels_keep_leading_dimensions():
    layout = WindowLayout([2, 2])
    assert layout.shift_labels(torch.arange(8).reshape(2, 4)).tolist() == [[1, -100, 3, -100], [5, -100, 7, -100]]


@pytest.mark.parametrize("arm", ARMS)
def test_concatenated_windows_do_not_see_each_other(arm):
    first = WindowLayout([3, 2], arm=arm, num_rows=6)
    second = WindowLayout([4], arm=arm, starts=[False])
    both = WindowLayout.concatenate([first, second, first])
    blocks = torch.block_diag(*(layout.dense_mask().int() for layout in (first, second, first))).bool()
    assert torch.equal(both.dense_mask(), blocks)
    assert both.position_ids.tolist() == [
        position for layout in (first, second, first) for position in layout.position_ids.tolist()
    ]
    tokens = torch.arange(both.num_rows)
    parts = zip((first, second, first), tokens.split([6, 4, 6]), strict=True)
    expected = torch.cat([layout.shift_labels(part) for layout, part in parts])
    assert torch.equal(both.shift_labels(tokens), expected)


def test_concatenating_twice_equals_concatenating_once():
    layouts = [WindowLayout([3, 2], document_ids=[0, 0]), WindowLayout([4], num_rows=5), WindowLayout([2, 2])]
    nested = WindowLayout.concatenate([WindowLayout.concatenate(layouts[:2]), layouts[2]])
    assert nested.digest == WindowLayout.concatenate(layouts).digest


def test_documents_come_from_the_layout_not_from_positions():
    one = WindowLayout([6], arm="document")
    two = WindowLayout([3, 3], arm="document")
    assert torch.equal(one.position_ids, two.position_ids)
    assert not torch.equal(one.dense_mask(), two.dense_mask())
    assert one.digest != two.digest


def test_tensors_and_arrays_are_taken_like_lists():
    lists = WindowLayout([3, 4], document_ids=[1, 0], starts=[True, False], prefix_lengths=[1, 2])
    tensors = WindowLayout(
        torch.tensor([3, 4]),
        document_ids=np.array([1, 0]),
        starts=torch.tensor([True, False]),
        prefix_lengths=torch.tensor([1, 2]),
    )
    assert lists.digest == tensors.digest


def test_a_window_may_hold_padding_alone():
    layout = WindowLayout([], num_rows=3)
    assert layout.segment_ids.tolist() == [-1, -1, -1]
    assert layout.shift_labels(torch.tensor([1, 1, 1])).tolist() == [-100, -100, -100]
    assert not layout.dense_mask().any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"piece_lengths": [3], "arm": "sliding"}, "not one of full, document, document_reset, anchor"),
        ({"piece_lengths": [3, 0]}, "piece 1 has 0 rows"),
        ({"piece_lengths": [3], "prefix_lengths": 4}, "prefix is part of its length"),
        ({"piece_lengths": [3], "prefix_lengths": -1}, "piece 0"),
        ({"piece_lengths": [3], "num_rows": 2}, "num_rows=2 is less than the 3 rows"),
        ({"piece_lengths": [3, 3], "document_ids": [0]}, "document_ids has 1 entries for 2 pieces"),
        ({"piece_lengths": [3, 3], "starts": [True]}, "starts has shape"),
        ({"piece_lengths": [2.5]}, "flat list of integers"),
        ({"piece_lengths": [3, 3], "document_ids": [4, 4], "starts": [True, True]}, "earlier piece of the same"),
        ({"piece_lengths": [3, 3], "prefix_lengths": [1, 0]}, "must begin with the anchor row"),
    ],
)
def test_contradictions_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        WindowLayout(**arguments)


def test_other_misuse_is_refused_by_name():
    with pytest.raises(ValueError, match="different arms"):
        WindowLayout.concatenate([WindowLayout([2]), WindowLayout([2], arm="full")])
    with pytest.raises(ValueError, match="at least one"):
        WindowLayout.concatenate([])
    with pytest.raises(ValueError, match="has 4 rows, the layout has 3"):
        WindowLayout([3]).shift_labels(torch.arange(4))
    with pytest.raises(ValueError, match="oracle for at most"):
        WindowLayout([40_000]).dense_mask()
