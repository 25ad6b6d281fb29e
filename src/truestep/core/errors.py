# SPDX-License-Identifier: Apache-2.0
"""The exceptions that Truestep raises for its users.

TruestepError
├── BatchError            a batch that can't be counted, split or moved
├── DataError             a data set, an order or a worker that can't give the samples asked for
├── LossError             a loss of the wrong shape, type or without gradient
│   └── NonFiniteError    a loss or gradient became NaN or infinite
├── OptionError           an option, or a pair of options, that does not work
├── CheckpointError       a checkpoint that can't be written, read or trusted
├── RunDirectoryError     a run directory that belongs to something else
├── RankError             another process of the run failed, or does not come
├── ModelError            a model whose forward fails, or that can't be taken apart or exported
├── MissingPackageError   a package that is needed here and not installed
└── GpuError              a GPU that is missing, taken, or asked for too late

Each says what happened with its values, why it matters, and what to write instead.
"""

import difflib
import heapq
import numbers
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from truestep.core.text_formatting import a_type, first_few, keyword_text

_SLIP, _SLIP_AT_THE_START = 0.74, 0.82
"""The share of letters in common, in order, from which a word is a slip of the keys: few people miss the first key."""
# what people call the better end
_SAME_AS = dict.fromkeys(
    [
        "lowest",
        "lower",
        "down",
        "less",
        "minimum",
        "minimize",
        "minimise",
        "smaller",
        "smallest",
        "descending",
    ],
    "min",
)
_SAME_AS |= dict.fromkeys(
    [
        "highest",
        "higher",
        "up",
        "more",
        "maximum",
        "maximize",
        "maximise",
        "larger",
        "largest",
        "greater",
        "ascending",
    ],
    "max",
)
_SHORTEST_START = 3
"""One that begins with the other says what was meant, from so many letters on: `min` of `minimum`."""


class TruestepError(Exception):
    """Base of every exception that Truestep raises for its users."""


class BatchError(TruestepError, ValueError):
    """A batch can't be counted, split or moved."""


class DataError(TruestepError, ValueError):
    """A data set, an order or a worker can't give the samples asked for."""


class LossError(TruestepError, ValueError):
    """A loss function returned something that can't be trained on."""


class NonFiniteError(LossError):
    """A loss or a gradient became NaN or infinite."""


class OptionError(TruestepError, ValueError):
    """An option, or a pair of options, does not work."""


class CheckpointError(TruestepError, RuntimeError):
    """A checkpoint can't be written, read or trusted."""


class RunDirectoryError(TruestepError, RuntimeError):
    """A run directory holds something else than this run."""


class RankError(TruestepError, RuntimeError):
    """Another process of the run failed or does not come, so this one can't go on; `rank` is its number, where it is known."""

    rank: int | None = None


class GpuError(TruestepError, RuntimeError):
    """A GPU is missing, taken by somebody else, or asked for too late."""


class ModelError(TruestepError, RuntimeError):
    """A model's forward fails on the batch given, or the model can't be exported."""


class MissingPackageError(TruestepError, ModuleNotFoundError):
    """A package that is needed here is not installed; the message names what to install."""


class _NamelessObject:
    """An object that has no names: in the place of the one that lacks a name, python adds no guess to ours."""

    def __dir__(self) -> list[str]:
        return []


NO_GUESS = _NamelessObject()


def names_hint(word: str, known: Iterable[str]) -> str:
    """Return the end of a "not found" message: the nearest names first, then all there are."""
    names = sorted(known)
    if not names:
        return "There are none."
    return f"{did_you_mean(word, names)}There are: {', '.join(names)}."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the question that names the nearest of some names, with a blank after it; nothing where none is near."""
    # options without their dashes and names without their package, which all have in common
    bare = {name.lstrip("-").removeprefix("nn."): name for name in sorted(known)}
    near = _Nearness(word.lstrip("-"))
    likeness = {name: near(name) for name in bare}
    close = heapq.nlargest(3, filter(likeness.__getitem__, bare), key=likeness.__getitem__)
    return f"Did you mean {' or '.join(repr(bare[name]) for name in close)}? " if close else ""


class _Nearness:
    """How near names are to a word that was written: 0 for one that is no slip of the keys and shares no word with it.

    Letters in common alone don't make one name mean another: `rand` is no answer to `ray`, nor `watch` to `batch`.
    """

    def __init__(self, word: str) -> None:
        self._written, self._words = word.lower(), _words_of(word)
        self._matcher = difflib.SequenceMatcher(b=self._written)

    def __call__(self, name: str) -> float:
        self._matcher.set_seq1(name.lower())
        return self._matcher.ratio() if self._is_meant(name.lower()) or self._has_words_of(name) else 0.0

    def _is_meant(self, name: str) -> bool:
        shorter, longer = sorted((self._written, name), key=len)
        if len(shorter) >= _SHORTEST_START and longer.startswith(shorter):
            return True
        least = _SLIP if self._written[:1] == name[:1] else _SLIP_AT_THE_START
        # the quick one is never less than the true one
        is_slip = self._matcher.quick_ratio() > least and self._matcher.ratio() > least
        return is_slip or sorted(shorter) == sorted(longer)

    def _has_words_of(self, name: str) -> bool:
        words = _words_of(name)
        return 2 * len(self._words & words) >= max(len(self._words), len(words), 1)


def _words_of(name: str) -> set[str]:
    """Return the words of a name: `load_weights`, `LoadWeights` and `load-weights` have the same two."""
    return {each.lower() for each in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)}


def did_you_mean_path(path: Path) -> str:
    """Return the end of a message about a path that is not there: the nearest names beside it, nothing without one.

    Where something else than was meant has the name, it says what that is.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:[/\\]", str(path)):  # a drive of Windows has one letter
        return " It is an address, and files of this machine are read: fetch it first, with git clone or curl -O."
    if path.exists():
        return _describe_existing_path(path)
    if path.is_symlink():
        return f" It is a link that leads nowhere: to {str(path.readlink())!r}."
    try:
        names = [each.name for each in path.parent.iterdir()]
    except OSError:
        return f" There is no folder {str(path.parent)!r} either."
    near = _Nearness(path.stem)  # endings, which many files have, make none near
    close = heapq.nlargest(
        3, [each for each in names if near(Path(each).stem)], key=lambda name: near(Path(name).stem)
    )
    return f" Did you mean {' or '.join(repr(str(path.with_name(name))) for name in close)}?" if close else ""


def _describe_existing_path(path: Path) -> str:
    if not path.is_dir():
        return " It is a file." if path.is_file() else " It is a pipe, a socket or a device."
    try:
        inside = sorted(each for each in path.iterdir() if each.suffix in (".py", ".ipynb"))
    except OSError:
        inside = []
    if not inside:
        return " It is a folder."
    return f" It is a folder, and holds {first_few([repr(str(each)) for each in inside], 3)}."


def check_number(owner: str, name: str, value: object, *, example: float, least: float | None = None) -> None:
    """Raise an OptionError unless an option is a real number, a whole one where the example is, and at least `least`."""
    kind = numbers.Integral if isinstance(example, int) else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind):
        whole = "whole " if kind is numbers.Integral else ""
        meant = intended_whole_number(value, least) if whole else None
        instead = f"one, such as {owner}({name}={example})" if meant is None else f"{owner}({name}={meant})"
        raise OptionError(
            f"{owner}({name}={value!r}) was given {a_type(value)} where a {whole}number is asked for: write {instead}."
        )
    if least is not None and not value >= least:  # type: ignore[operator]  # NaN is not
        raise OptionError(
            f"{owner}({name}={value!r}): give at least {least}, such as {owner}({name}={example})."
        )


def intended_whole_number(value: Any, least: float | None = None) -> int | None:
    """Return the number that stands for a value of another type: of 2.0, "2" and range(2) it is 2; None where none does."""
    if isinstance(value, range):
        value = len(value) if value == range(len(value)) else None
    try:
        number = None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor of several elements raises the last
        return None
    if number is None or not number.is_integer() or (least is not None and number < least):
        return None
    return int(number)


def check_flag(owner: str, name: str, value: object, *, no_number: str = "") -> None:
    """Raise an OptionError unless an option is a truth value; `no_number` says why it is no number above 1 either."""
    if type(value).__name__ not in ("bool", "bool_"):  # the latter is NumPy's
        why = "; any text counts as true, whatever it says" if isinstance(value, str) else ""
        if isinstance(value, int) and value > 1:
            why = no_number
        raise OptionError(f"{owner}({name}={value!r}): write True or False{why}.")


def check_choice(owner: str, name: str, value: object, choices: Iterable[object]) -> None:
    """Raise an OptionError unless an option is one of a few values; it names the nearest, and all."""
    known = list(choices)
    if value not in known:
        if (meant := _SAME_AS.get(str(value).lower(), value)) in known:
            raise OptionError(
                f"{owner}({name}={value!r}) is unknown: write {keyword_text(name, repr(meant))}."
            )
        raise OptionError(f"{owner}({name}={value!r}) is unknown. {names_hint(str(value), map(str, known))}")


@contextmanager
def explain_missing_extra(extra: str, *packages: str) -> Iterator[None]:
    """Answer a failing import of one of `packages` with what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        raise MissingPackageError(
            f"{missing} is not installed. Install it with: pip install 'truestep[{extra}]'", name=missing
        ) from error
