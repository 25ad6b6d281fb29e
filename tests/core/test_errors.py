# SPDX-License-Identifier: Apache-2.0
"""Options are checked in one way: a number, a flag, one of a few values; the message is the call with what was given."""

import math

import pytest

from truestep.core.errors import OptionError, check_choice, check_flag, check_number, intended_whole_number


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda: check_number("ts.f", "n", "3", example=1),
            r"ts\.f\(n='3'\) was given a str where a whole number",
        ),
        (lambda: check_number("ts.f", "n", True, example=1), "was given a bool"),
        (lambda: check_number("ts.f", "n", 1.5, example=1), "was given a float where a whole number"),
        (
            lambda: check_number("ts.f", "n", 0, example=4, least=1),
            r"ts\.f\(n=0\): give at least 1, such as ts\.f\(n=4\)",
        ),
        (lambda: check_number("ts.f", "x", math.nan, example=0.5, least=0), r"x=nan\): give at least 0"),
        (lambda: check_flag("ts.f", "on", 1), r"ts\.f\(on=1\): write True or False"),
        (
            lambda: check_choice("ts.f", "mode", "nearst", ("nearest", "linear", None)),
            r"ts\.f\(mode='nearst'\) is unknown\. Did you mean 'nearest' or 'linear'\? There are: None, linear, nearest",
        ),
    ],
)
def test_what_an_option_can_t_be_is_refused_with_the_call(check, message):
    with pytest.raises(OptionError, match=message):
        check()


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        *[(2.0, 2), ("3", 3), ("4.0", 4), (range(5), 5), (math.nan, None), (math.inf, None), (2.5, None)],
        *[(range(1, 4), None), ("many", None), (None, None), (True, None), ([1, 2], None), ("-1", None)],
    ],
)
def test_the_line_to_write_has_the_number_that_was_meant(value, meant):
    assert intended_whole_number(value, least=0) == meant
    if meant is not None:
        with pytest.raises(OptionError, match=rf"asked for: write ts\.f\(n={meant}\)\.$"):
            check_number("ts.f", "n", value, example=1)


def test_what_an_option_can_be_passes():
    check_number("ts.f", "n", 1, example=4, least=1)
    check_number("ts.f", "x", math.inf, example=0.5, least=0)
    check_flag("ts.f", "on", False)
    check_choice("ts.f", "mode", None, ("nearest", None))
