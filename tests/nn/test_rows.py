# SPDX-License-Identifier: Apache-2.0
"""Sequences in rows: each stands once, whole, and looks at itself alone."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import truestep as ts
from truestep.core.errors import BatchError

LENGTHS = st.lists(st.integers(1, 20), min_size=1, max_size=40)


@given(LENGTHS, st.integers(20, 40))
def test_every_sequence_comes_back_and_no_position_is_used_twice(lengths, row_length):
    sequences = [torch.arange(length) + 100 * number for number, length in enumerate(lengths)]
    rows = ts.pack_rows(lengths, row_length)
    packed = rows.pack(sequences, padding_value=-1)
    for sequence, found in zip(sequences, rows.unpack(packed), strict=True):
        assert torch.equal(sequence, found)
    assert int((packed != -1).sum()) == sum(lengths)
    assert torch.equal(packed == -1, rows.sequence_ids == -1)
    assert rows.padding_share == pytest.approx(1 - sum(lengths) / packed.numel())
    filled = sum(lengths) / row_length
    assert filled <= rows.num_rows < 2 * filled + 1
    used = sorted((rows.sequence_ids >= 0).sum(1).tolist())
    assert len(used) == 1 or used[0] + used[1] > row_length  # no two rows would fit into one


@given(LENGTHS)
def test_positions_count_within_a_sequence(lengths):
    rows = ts.pack_rows(lengths, 20)
    for positions, length in zip(rows.unpack(rows.positions), lengths, strict=True):
        assert positions.tolist() == list(range(length))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_over_rows_is_that_of_each_sequence_alone(causal):
    lengths = [3, 7, 2, 5, 4]
    query, key, value = ([torch.randn(n, 8, dtype=torch.float64) for n in lengths] for _ in range(3))
    rows = ts.pack_rows(lengths, 9)
    q, k, v = (rows.pack(each)[:, None] for each in (query, key, value))
    outputs = F.scaled_dot_product_attention(q, k, v, attn_mask=rows.attention_mask(causal=causal))[:, 0]
    assert outputs.isfinite().all()
    for number, found in enumerate(rows.unpack(outputs)):
        alone = F.scaled_dot_product_attention(
            query[number][None], key[number][None], value[number][None], is_causal=causal
        )[0]
        torch.testing.assert_close(found, alone, rtol=1e-10, atol=1e-12)


def test_the_same_lengths_give_the_same_places_and_labels_go_where_inputs_went():
    lengths = [4, 4, 2, 9, 1]
    rows, again = ts.pack_rows(torch.tensor(lengths), 10), ts.pack_rows(lengths, 10)
    assert rows.places == again.places
    assert rows.num_rows == 2
    assert rows.padding_share == 0
    assert rows.padding_share_unpacked == pytest.approx(1 - 20 / 45)
    assert "5 sequences in 2 rows of 10, 0.0% padding" in repr(rows)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([], "no lengths"),
        ([3, 0], "leave empty sequences out"),
        ([3, 11], r"1 sequences \(\[1\]\) are longer"),
    ],
)
def test_lengths_that_fit_no_row_are_refused(lengths, message):
    with pytest.raises(BatchError, match=message):
        ts.pack_rows(lengths, 10)


def test_other_sequences_than_the_rows_were_made_for_are_refused():
    with pytest.raises(BatchError, match="were made for"):
        ts.pack_rows([2, 3], 5).pack([torch.zeros(3), torch.zeros(2)])
