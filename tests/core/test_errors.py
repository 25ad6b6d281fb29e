# SPDX-License-Identifier: Apache-2.0
"""Options are checked in one way: a number, a flag, one of a few values; the message is the call with what was given."""

import math
import random
import string

import pytest
import torch.nn
import torch.optim

import truestep as ts
from truestep.core.errors import (
    OptionError,
    check_choice,
    check_flag,
    check_number,
    did_you_mean,
    intended_whole_number,
)


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
            r"ts\.f\(mode='nearst'\) is unknown\. Did you mean 'nearest'\? There are: None, linear, nearest",
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


def _slips(name, rng):
    """Yield a name with a letter left out, put in, written wrongly, and with two letters in the wrong order."""
    k = rng.randrange(len(name) - 1)
    letter = rng.choice(string.ascii_lowercase)
    yield name[:k] + name[k + 1 :]
    yield name[:k] + letter + name[k:]
    yield name[:k] + letter + name[k + 1 :]
    yield name[:k] + name[k + 1] + name[k] + name[k + 2 :]


@pytest.mark.parametrize("seed", range(3))
def test_every_slip_of_the_keys_is_answered_with_the_name_that_was_meant(seed):
    rng = random.Random(seed)
    names = [name for name in ts.__all__ if len(name) > 5]
    for name in names:
        for slip in _slips(name, rng):
            assert slip in names or repr(name) in did_you_mean(slip, names), (slip, name)


def test_words_of_other_libraries_seldom_look_like_a_name_of_ours():
    strange = {name for home in (torch, torch.nn, torch.optim, math, string) for name in dir(home)}
    strange = {name for name in strange if not name.startswith("_")} - {*ts.__all__}
    answered = [name for name in sorted(strange) if did_you_mean(name, ts.__all__)]
    assert len(strange) > 1000
    assert len(answered) < len(strange) / 10, answered
    # letters in common make no answer, a word in common does
    for word in ("ray", "tune", "batch", "wandb", "sklearn", "accuracy", "validate", "collate"):
        assert not did_you_mean(
            word, [name for name in ts.__all__ if not name.startswith(("Wandb", "Batch"))]
        )
    assert "'clip_gradients'" in did_you_mean("gradients_clip", ts.__all__)
    assert "'EarlyStopping'" in did_you_mean("early_stopping", ts.__all__)
