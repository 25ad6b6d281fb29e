# SPDX-License-Identifier: Apache-2.0
"""Calls with other arguments than a function takes: python names the arguments, this names what to write."""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from types import FunctionType
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from truestep.core.errors import OptionError, check_flag, names_hint
from truestep.core.guidance import guidance, option_by_other_name
from truestep.core.text_formatting import literal_text

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=type)
Explain = Callable[[tuple[Any, ...]], str | None]

_DECORATORS = ("contextlib", "torch.utils._contextlib")  # of context managers, and of torch.no_grad()
_MARK = "_explained_as"
_LONGEST = 30  # of a text that is written out once more


def check_keyword_options(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise an OptionError for the first of `given` that is not `known`."""
    if said := _unknown_keywords_message(owner, given, list(known)):
        raise OptionError(said)


def _unknown_keywords_message(owner: str, given: Iterable[str], known: list[str]) -> str | None:
    values = given if isinstance(given, Mapping) else dict.fromkeys(given)
    said = [
        _unknown_option_message(owner, name, value, known)
        for name, value in values.items()
        if name not in known
    ]
    return " ".join(said) or None


def _unknown_option_message(owner: str, name: str, value: object, known: list[str]) -> str:
    """Return what to write in the place of an option that is not there."""
    said, place = f"{owner} has no option {name!r}.", f"{owner}(NAME=...)"
    is_word = isinstance(value, str | bool) or type(value).__name__ == "dtype"  # what a row may name, too
    if instead := (is_word and guidance(place, f"{name}={value}")) or guidance(place, name):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # an example, or three dots: what was given is meant
        if is_number and re.fullmatch(r"\w+=(\d[\d.]*|\.\.\.)", instead):
            instead = f"{instead.partition('=')[0]}={value!r}"
        if isinstance(value, FunctionType) and "=lambda " in instead:
            instead = f"{instead.partition('=')[0]}=, with the same function"
            if instead.startswith("schedule="):
                instead += ", in ts.per_epoch(...) where it counts epochs"
        if isinstance(value, str | PathLike) and instead.endswith('"runs/digits")'):
            instead = instead.replace('"runs/digits"', repr(fspath(value)))
        return f"{said} Write {instead}."
    if word := option_by_other_name(name, known):
        return f"{said} Here it is called {word}: {owner}({word}={_as_given(value)})."
    return f"{said} {names_hint(name, known)}"


def _as_given(value: object) -> str:
    """Return a short value as Python reads it, and "..." for another."""
    if isinstance(value, str):
        return literal_text(value) if len(value) <= _LONGEST else "..."
    return repr(value) if value is None or isinstance(value, bool | int | float) else "..."


def is_argument_error(error: TypeError, through: str | tuple[str, ...] | None = None) -> bool:
    """Whether a TypeError caught where a python function was called is about its arguments: none of its lines has run.

    `through`: how the modules begin whose functions may lie between the `except` and the call.
    """
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    # A call that fails on its arguments adds no frame of the function that was called.
    while trace is not None and through and trace.tb_frame.f_globals.get("__name__", "").startswith(through):
        trace = trace.tb_next
    return trace is None


def raises_option_errors(
    owner: str, otherwise: Explain | None = None
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a function so that arguments that it does not take raise an OptionError that says what to write.

    So does another value than True or False for an option that is either: of a text each would be taken for True.

    Args:
        owner: what the function is called where it is used, "run.data"; by that the table of guidance is asked.
        otherwise: of a method, a function of its arguments that says what to write where no keyword is wrong; by default it is
            what the table has for the call, else what goes by name, and what is missing.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        flags = [name for name, kind in function.__annotations__.items() if kind in (bool, "bool")]

        @functools.wraps(function)
        def call_with_option_errors(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
            if keywords and flags:
                _check_flags(owner, flags, keywords)
            try:
                return function(*arguments, **keywords)
            except TypeError as error:
                # a TypeError from within the function is the user's to see as it is
                if not is_argument_error(error, through=_DECORATORS):
                    raise
                # only now: a call that fits never pays for looking at the signature
                said = _wrong_call_message(owner, inspect.signature(function), arguments, keywords, otherwise)
                if said is None:
                    raise
            raise OptionError(said)

        setattr(call_with_option_errors, _MARK, owner)  # decorators above take it over
        return call_with_option_errors

    return decorate


def _check_flags(owner: str, flags: Iterable[str], keywords: Mapping[str, object]) -> None:
    for flag in flags:
        if (value := keywords.get(flag, True)) is not True and value is not False:
            check_flag(owner, flag, value)


def _wrong_call_message(
    owner: str,
    signature: inspect.Signature,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    otherwise: Explain | None,
) -> str | None:
    """Return what to write in the place of a call; None where nothing is known."""
    named = _keyword_parameters(signature)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    form = guidance("NAME(...)", owner)
    # of a function that takes any name, what it says itself is no guess
    said = _unknown_keywords_message(owner, keywords, named) if named and not (takes_any and form) else None
    said = said or (otherwise(arguments[1:]) if otherwise is not None else None) or form
    said = said or _too_many_arguments_message(owner, signature, arguments)
    return said or _missing_arguments_message(owner, signature, arguments, keywords)


def _keyword_parameters(signature: inspect.Signature) -> list[str]:
    """Return the parameters that can be given by name."""
    return [
        each.name
        for each in signature.parameters.values()
        if each.name != "self" and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]


def _too_many_arguments_message(
    owner: str, signature: inspect.Signature, arguments: tuple[Any, ...]
) -> str | None:
    """Return what to write where more was given by place than goes by place."""
    parameters = list(signature.parameters.values())
    by_place = [each for each in parameters if each.kind <= each.POSITIONAL_OR_KEYWORD]
    extra = arguments[len(by_place) :]
    by_place = [each for each in by_place if each.name != "self"]
    by_name = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    takes_any = any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters)
    if not _keyword_parameters(signature) and not takes_any:
        return f"{owner} takes nothing: write {owner}()."
    first = ", ".join(each.name for each in by_place)
    if extra and not by_name and not takes_any:
        return f"{owner} was given {len(extra)} more than it takes: write {owner}({first})."
    if not extra or not by_name:
        return None
    written = [*([first] if first else []), *(f"{name}=..." for name in by_name[: len(extra)])]
    form = f"{owner}({', '.join(written)})"
    return (
        f"{owner} takes {first or 'nothing'} by place, and all else by name: {form}. The names are: {', '.join(by_name)}."
        f"{_schedule_lambda_hint(parameters[0], form)}"
    )


def _schedule_lambda_hint(first: inspect.Parameter, form: str) -> str:
    """Say how a learner gets a schedule, which is made of an optimizer that does not exist yet where it is named."""
    if getattr(first.annotation, "__name__", first.annotation) != "Optimizer":
        return ""
    return f" A learner makes its optimizer later, and is given a function of it: schedule=lambda {first.name}: {form}."


def _missing_arguments_message(
    owner: str, signature: inspect.Signature, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> str | None:
    """Return what to write where something was not given that has no default."""
    parameters = list(signature.parameters.values())
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [
        each
        for each in parameters
        if each.default is each.empty and each.kind not in variable and each.name != "self"
    ]
    by_place = {each.name for each in parameters[: len(arguments)] if each.kind is not each.KEYWORD_ONLY}
    missing = [each.name for each in needed if each.name not in by_place | keywords.keys()]
    if not missing:
        return None
    form = ", ".join(f"{each.name}=..." if each.kind is each.KEYWORD_ONLY else each.name for each in needed)
    chosen = [
        f" {each.name} is {' or '.join(map(repr, get_args(each.annotation)))}."
        for each in needed
        if get_origin(each.annotation) is Literal
    ]
    form = f"{owner}({form})"
    later = _schedule_lambda_hint(needed[0], form) if needed[0].name == missing[0] else ""
    return f"{owner} was not given {' and '.join(missing)}. Write {form}.{later}{''.join(chosen)}"


def methods_raise_option_errors(owner: str) -> Callable[[Kind], Kind]:
    """Decorate a class so that each public method of its own is answered as `owner.method`, where it is not yet."""

    def decorate(kind: Kind) -> Kind:
        for name, method in list(vars(kind).items()):
            if not isinstance(method, FunctionType) or name.startswith("_") or hasattr(method, _MARK):
                continue
            if not _accepts_any_arguments(method):  # run.log(**thousand): each frame between copies the names
                setattr(kind, name, raises_option_errors(f"{owner}.{name}")(method))
        return kind

    return decorate


def _accepts_any_arguments(method: FunctionType) -> bool:
    """Whether no call of a method can fail to fit: it is `(self, /, *arguments, **keywords)`."""
    code, anything = method.__code__, inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return code.co_flags & anything == anything and code.co_argcount == 1 and not code.co_kwonlyargcount


def with_option_errors(called: str, public: Any) -> Any:
    """Return a public function, or a class whose constructor, answers wrong calls; a class is the one it was.

    A function stands in the place of the one that its module defines, so that it can be pickled by its name.
    """
    explains = raises_option_errors(called)
    if isinstance(public, type):
        constructor = vars(public).get("__init__")
        if isinstance(constructor, FunctionType) and not hasattr(constructor, _MARK):
            public.__init__ = explains(constructor)  # type: ignore[misc]
    elif isinstance(public, FunctionType) and not hasattr(public, _MARK):
        home, name = sys.modules[public.__module__], public.__name__
        public = explains(public)
        setattr(home, name, public)
    return public
