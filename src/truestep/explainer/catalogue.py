# SPDX-License-Identifier: Apache-2.0
"""Finds every explained error by scanning the folder of errors; nothing is registered, torch is not imported."""

import inspect
import pkgutil
import re
from difflib import SequenceMatcher
from functools import cache
from importlib import import_module

from truestep.core.errors import OptionError, names_hint
from truestep.explainer import errors as folder
from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Explainer, Match

_LIKE = 0.75  # the share of letters in common, in order, from which a text is most likely a known message


@cache
def explained_errors() -> dict[str, type[Explainer]]:
    """Return every error by its name, sorted."""
    found: dict[str, type[Explainer]] = {}
    for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
        if not module.ispkg:
            for error in _explainers_in_module(module.name):
                assert error.name() not in found, f"two errors are called {error.name()}"
                found[error.name()] = error
    return dict(sorted(found.items()))


def _explainers_in_module(module_name: str) -> list[type[Explainer]]:
    members = vars(import_module(module_name)).values()
    return [
        each
        for each in members
        if inspect.isclass(each) and issubclass(each, Explainer) and each.__module__ == module_name
    ]


def error_topic_folder(error: type[Explainer]) -> str:
    """Return the folder that an error lives in."""
    return error.__module__.split(".")[-2]


def find_error(name: str) -> type[Explainer]:
    """Return the error of a name."""
    known = explained_errors()
    if name.lower() in known:
        return known[name.lower()]
    close = names_hint(name, known).partition("There are")[0]
    raise OptionError(f"There is no error {name!r}. {close}`truestep errors` lists all.")


def recognise_error(crash: Crash) -> tuple[type[Explainer], Match] | None:
    """Return the error that a crash is, with where its message says so: the longest text that fits decides."""
    found = [(error, match) for error in explained_errors().values() if (match := error.match(crash))]
    return max(found, key=lambda pair: len(pair[1][0]), default=None)


def nearest_errors(text: str, num: int = 3) -> list[str]:
    """Return the names of the errors whose messages are most like a text, and of those whose pages share the most words with it."""
    words = _significant_words(text)
    known = explained_errors()
    shared = {name: len(words & _words_of_error_page(error)) for name, error in known.items()}
    like = {
        name: max((_likeness(text, each) for each in error.messages), default=0.0)
        for name, error in known.items()
    }
    close = [name for name in known if shared[name] > 1 or like[name] > _LIKE]
    return sorted(close, key=lambda name: (like[name] > _LIKE and like[name], shared[name]), reverse=True)[
        :num
    ]


def _likeness(text: str, message: str) -> float:
    """Return how like a text is to a message, whose pattern is taken for its letters, as a slip of the keys leaves it."""
    matcher = SequenceMatcher(None, _letters(text), _letters(message))
    return matcher.ratio() if matcher.quick_ratio() > _LIKE else 0.0


@cache
def _letters(text: str) -> str:
    return re.sub(r"[^a-z ]", "", text.lower())


@cache
def _words_of_error_page(error: type[Explainer]) -> frozenset[str]:
    page = error.page()
    return _significant_words(
        f"{error.name()} {page.summary} {page.means} {page.recorded} {' '.join(error.messages)}"
    )


def _significant_words(text: str) -> frozenset[str]:
    common = {
        "error", "runtimeerror", "valueerror", "typeerror", "with", "that", "this", "from", "have", "should",
    }  # fmt: skip
    return frozenset(re.findall(r"[a-z]{4,}", text.lower().replace("-", " "))) - common
