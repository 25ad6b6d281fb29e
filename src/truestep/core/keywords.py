# SPDX-License-Identifier: Apache-2.0
"""Keywords that a function does not have: the nearest that it has, or what other libraries' word for it is here."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

from truestep.core.errors import OptionError, nearest

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def check_keywords(
    owner: str, given: Iterable[str], known: Iterable[str], elsewhere: Mapping[str, str]
) -> None:
    """Raise an OptionError for the first of `given` that is not `known`; `elsewhere` says what to write for other words."""
    names = list(known)
    for name in given:
        if name in names:
            continue
        instead = f"Write {elsewhere[name]}." if name in elsewhere else nearest(name, names)
        raise OptionError(f"{owner} has no option {name!r}. {instead}")


def explains_keywords(
    owner: str, elsewhere: Mapping[str, str]
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a function so that an unknown keyword is answered as `check_keywords` does; its signature stays."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters = inspect.signature(function).parameters.values()
        known = [p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD]

        @functools.wraps(function)
        def checked(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
            if not keywords.keys() <= set(known):
                check_keywords(owner, keywords, known, elsewhere)
            return function(*arguments, **keywords)

        return checked

    return decorate
