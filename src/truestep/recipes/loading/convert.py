# SPDX-License-Identifier: Apache-2.0
"""From the words of a command line to the types of a Config."""

import enum
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from truestep.errors import OptionError, nearest
from truestep.recipes.loading.source import Option

SUPPORTED = "int, float, str, bool, Path, Literal, Enum, tuple or list of these, and each with None"
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def split_arguments(arguments: Sequence[str], options: Sequence[Option]) -> dict[str, str | bool]:
    """Return the given options by field name: the word after each, or True and False for switches."""
    by_flag = {option.flag: option for option in options}
    switches = {f"--no-{option.flag[2:]}": option for option in options if option.is_switch}
    given: dict[str, str | bool] = {}
    rest = list(arguments)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if not flag.startswith("--"):
            raise OptionError(f"{flag!r} stands where an option should. Options begin with --, as --seed 1.")
        flag = "--" + flag[2:].replace("_", "-")
        if flag in switches and not equals:
            given[switches[flag].name] = False
            continue
        option = by_flag.get(flag)
        if option is None:
            raise OptionError(f"There is no option {flag}. {nearest(flag, [*by_flag, *switches])}")
        if equals:
            given[option.name] = value
        elif option.is_switch:
            given[option.name] = True
        else:
            given[option.name] = _next_word(option, rest, by_flag)
    return given


def _next_word(option: Option, rest: list[str], by_flag: dict[str, Option]) -> str:
    if not rest or rest[0].partition("=")[0].replace("_", "-") in by_flag:
        raise OptionError(f"{option.flag} needs a value ({option.annotation}), as {option.flag} VALUE.")
    return rest.pop(0)


def converted(option: Option, word: str | bool, annotation: Any) -> Any:
    """Return the word as the field's type."""
    if isinstance(word, bool):
        return word
    try:
        return _convert(word, annotation)
    except ValueError as error:
        raise OptionError(f"{option.flag} {word}: {error}") from error


def _convert(word: str, annotation: Any) -> Any:
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _one_of(word, inside)
    if origin is Literal:
        return _named(word, {str(value): value for value in inside})
    if origin in (tuple, list):
        return origin(_many(word, inside, is_tuple=origin is tuple))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members = {str(member.value): member for member in annotation}
        return _named(word, {**members, **annotation.__members__})
    if annotation not in PLAIN:
        raise ValueError(f"the command line can't make a {annotation}; it can make {SUPPORTED}.")
    return PLAIN[annotation](word)


def _one_of(word: str, kinds: Sequence[Any]) -> Any:
    if type(None) in kinds and word.lower() == "none":
        return None
    errors = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return _convert(word, kind)
            except ValueError as error:
                errors.append(str(error))
    raise ValueError(" ".join(errors))


def _many(word: str, inside: Sequence[Any], *, is_tuple: bool) -> list[Any]:
    words = [part.strip() for part in word.strip("()[] ").split(",") if part.strip()]
    kinds = list(inside) or [str]
    if not is_tuple or (len(kinds) == 2 and kinds[1] is Ellipsis):
        kinds = kinds[:1] * len(words)
    if len(kinds) != len(words):
        raise ValueError(f"{len(kinds)} values are needed, separated by commas, and {len(words)} are given.")
    return [_convert(part, kind) for part, kind in zip(words, kinds, strict=True)]


def _named(word: str, values: dict[str, Any]) -> Any:
    folded = {name.lower(): value for name, value in values.items()}
    if word not in values and word.lower() not in folded:
        raise ValueError(f"no such value. {nearest(word, values)}")
    return values.get(word, folded.get(word.lower()))


def _bool(word: str) -> bool:
    if word.lower() not in YES + NO:
        raise ValueError("a switch is true or false.")
    return word.lower() in YES


def _int(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        number = _float(word)  # 1e6 is a whole number too
    if number != number // 1:
        raise ValueError("a whole number is needed, as 64.")
    return int(number)


def _float(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise ValueError("a number is needed, as 0.001 or 1e-3.") from None


PLAIN: dict[Any, Callable[[str], Any]] = {
    bool: _bool, int: _int, float: _float, str: str, Path: Path, Any: str,
}  # fmt: skip
