# SPDX-License-Identifier: Apache-2.0
"""Finding the parts of a model by name or pattern."""

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase

from torch import nn

from truestep.core.errors import OptionError, nearest
from truestep.nn.derivatives.undisturbed import module_of

SHOWN_NAMES = 20


def model_of(model: object, piece: str) -> nn.Module:
    """Return the module that a user's `model` is or owns (a learner, a compiled module)."""
    module = module_of(model)
    if module is None:
        raise OptionError(f"{piece} needs a module, or a learner of a run, got {type(model).__name__}.")
    return module


def select(pattern: str, names: Iterable[str], kind: str) -> list[str]:
    """Return the names that a pattern matches as in a shell (`*` matches dots too); at least one, or it is an error."""
    known = list(names)
    found = [name for name in known if fnmatchcase(name, pattern)]
    if not found:
        raise OptionError(f"No {kind} is called {pattern!r}. {_near(pattern, known)}")
    return found


def select_within(pattern: str, names: Iterable[str], kind: str) -> list[str]:
    """Do the same, where the name of a module stands for everything inside it: "encoder" is "encoder.*" too."""
    known = list(names)
    inside = [name for name in known if any(fnmatchcase(prefix, pattern) for prefix in _prefixes(name))]
    return inside or select(pattern, known, kind)


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _near(word: str, known: list[str]) -> str:
    if len(known) <= SHOWN_NAMES:
        return nearest(word, filter(None, known))
    close = difflib.get_close_matches(word, known, n=5, cutoff=0.4) or known[:5]
    return f"The nearest of {len(known)} names are: {', '.join(close)}. Patterns are those of a shell, such as {known[-1][:1]}*."
