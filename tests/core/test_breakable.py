# SPDX-License-Identifier: Apache-2.0
"""Long names in narrow columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.core.line_breaking import WrappingText
from truestep.core.rich_imports import Text


@pytest.mark.parametrize(
    ("name", "hang", "width", "expected"),
    [
        ("  tokens_of_the_encoder: Embedding", 4, 24, ["  tokens_of_the_", "    encoder: Embedding"]),
        ("loss=2\nvalidation_accuracy=1.5", 2, 14, ["loss=2", "validation_", "  accuracy=1.5"]),
        ("loss=0.0263", 2, 20, ["loss=0.0263"]),
        ("0: Linear", 2, 9, ["0: Linear"]),
        ("abcdefghij", 2, 6, ["abcdef", "  ghij"]),
    ],
)
def test_a_name_is_broken_where_a_reader_would(name, hang, width, expected):
    assert WrappingText(Text(name), hang).broken(width).plain.split("\n") == expected


@given(st.text("ab_:= /é", max_size=60), st.integers(0, 9), st.integers(2, 40))
def test_every_line_fits_and_nothing_is_lost(name, hang, width):
    lines = WrappingText(Text(name), hang).broken(width).plain.split("\n")
    hang = min(hang, width // 2)
    assert all(len(line) <= width for line in lines)
    assert lines[0] + "".join(line[hang:] for line in lines[1:]) == name
