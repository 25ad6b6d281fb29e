# SPDX-License-Identifier: Apache-2.0
"""Unknown keywords are answered, and a decorated function is otherwise what it was."""

import inspect

import pytest

from truestep.core.errors import OptionError
from truestep.core.keywords import explains_keywords


@explains_keywords("make", {"colour": "color='red'"})
def make(size, *, color="blue", weight=1.0):
    """Make something."""
    return size, color, weight


def test_known_keywords_go_through():
    assert make(1, color="red") == (1, "red", 1.0)
    assert make(size=2) == (2, "blue", 1.0)
    assert str(inspect.signature(make)) == "(size, *, color='blue', weight=1.0)"
    assert make.__doc__ == "Make something."


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"colour": 1}, "make has no option 'colour'. Write color='red'."),
        ({"wieght": 1}, "make has no option 'wieght'. Did you mean 'weight'.*There are: color, size, weight"),
    ],
)
def test_unknown_ones_are_answered(keywords, message):
    with pytest.raises(OptionError, match=message):
        make(1, **keywords)


def test_what_is_missing_is_still_pythons_to_say():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'size'"):
        make()
