# SPDX-License-Identifier: Apache-2.0
"""Numbers read the same everywhere: on the bar, in the log and in the report."""

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import truestep
from truestep.core.text_formatting import (
    a_type,
    bytes_text,
    duration_text,
    number_text,
    percent_text,
    plural,
    printable_text,
    short_number,
    with_article,
)

NUMBERS = {
    0: "0", 3: "3", 12_345: "12,345", -2: "−2", 0.5: "0.5000", 2.302585: "2.303", 45.678: "45.68",
    9_999.5: "10,000", 0.00312: "0.003120", -0.25: "−0.2500", 1.5e-5: "1.5e-5", 123_456.7: "123,457",
    -1e300: "−1e300", 2e7: "2e7",
    math.nan: "NaN", math.inf: "∞", -math.inf: "−∞",
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), NUMBERS.items())
def test_number(value, text):
    assert number_text(value) == text


SHORT = {
    0: "0",
    999: "999",
    999.6: "1k",
    1_000: "1k",
    51_234: "51.2k",
    999_600: "1M",
    3.4e9: "3.4G",
    0.25: "0.25",
}


@pytest.mark.parametrize(("value", "text"), SHORT.items())
def test_short_number(value, text):
    assert short_number(value) == text


SIZES = {
    None: "-",
    0: "0 B",
    1023: "1,023 B",
    1024: "1 KiB",
    1536: "1.5 KiB",
    123_456_789: "117.7 MiB",
    -(2**20): "-1 MiB",
    150_754_820_096: "140.4 GiB",
    1020 * 2**20: "1,020 MiB",
    3 * 2**40: "3 TiB",
    5 * 2**50: "5,120 TiB",
}


@pytest.mark.parametrize(("value", "text"), SIZES.items())
def test_byte_size(value, text):
    assert bytes_text(value) == text


TIMES = {0: "0:00", 42.4: "0:42", 59.6: "1:00", 3723: "1:02:03", 47 * 3600: "47:00:00", 76 * 3600: "3 d 4 h"}


@pytest.mark.parametrize(("seconds", "text"), TIMES.items())
def test_duration(seconds, text):
    assert duration_text(seconds) == text


def test_a_number_stands_with_its_noun():
    assert [plural(each, "batch", "batches") for each in (0, 1, 2000)] == [
        "0 batches",
        "1 batch",
        "2,000 batches",
    ]
    assert [plural(each, "epoch") for each in (1, 2)] == ["1 epoch", "2 epochs"]


@pytest.mark.parametrize(
    "text",
    [
        "an int",
        "an OrderedDict",
        "an array",
        "a Tensor",
        "a str",
        "an LSTM",
        "a GRU",
        "an SGD",
        "a uint8",
        "a LambdaLR",
    ],
)
def test_a_word_has_its_article(text):
    assert with_article(text.partition(" ")[2]) == text


def test_no_message_writes_an_article_before_a_class_by_hand():
    package = Path(truestep.__file__).parent
    by_hand = re.compile(r"\b[Aa] \{type\([^}]*\)\.__name__\}")
    assert [path.name for path in package.rglob("*.py") if by_hand.search(path.read_text("utf-8"))] == []


@given(st.text())
def test_what_is_printed_steers_no_terminal(text):
    shown = printable_text(text)
    assert all(each.isprintable() or each in "\t\n" for each in shown)
    assert shown == text or any(not each.isprintable() for each in text)
    assert a_type(text) == "a str"


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.1, "10%"), (0.12, "10%"), (0.0002, "0.02%"), (1e-7, "1e-05%"), (0.0, "0%"), (1.5, "200%")],
)
def test_a_percentage_has_one_digit_that_counts_and_no_exponent_of_ten(share, text):
    assert percent_text(share) == text
