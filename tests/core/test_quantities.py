# SPDX-License-Identifier: Apache-2.0
"""Bytes and durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.core.errors import OptionError
from truestep.core.quantities import parse_bytes, parse_seconds
from truestep.core.text_formatting import bytes_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20GiB", 20 * 2**30),
        ("20 gib", 20 * 2**30),
        ("1.5MiB", 3 * 2**19),
        ("80GB", 80 * 10**9),
        ("80G", 80 * 10**9),
        ("512", 512),
        (512, 512),
        ("0", 0),
        ("1KiB", 1024),
        ("2TiB", 2**41),
        ("10b", 10),
    ],
)
def test_bytes(text, expected):
    assert expected == parse_bytes(text)


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "20 G i B", "20XB", "nan", "twenty"])
def test_what_is_no_amount_is_refused_with_an_example(text):
    with pytest.raises(OptionError, match="20GiB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        (90, 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("30m", 1800),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172800),
    ],
)
def test_durations(text, expected):
    assert expected == parse_seconds(text)


@pytest.mark.parametrize("text", ["", "m", "-5", "5x", "30m later", "h30"])
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(OptionError, match="1h30m"):
        parse_seconds(text)


@given(st.integers(0, 2**50))
def test_what_is_shown_is_what_is_read_within_a_twentieth(size):
    assert abs(parse_bytes(bytes_text(size).replace(",", "")) - size) <= size / 20
