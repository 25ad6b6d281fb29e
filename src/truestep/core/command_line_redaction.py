# SPDX-License-Identifier: Apache-2.0
"""The words of a command line, and what of them may be shown and kept."""

import re
from collections.abc import Iterator, Sequence

from truestep.core.secret_values import (
    HIDDEN,
    Hide,
    hide_behind_login_option,
    hide_secret_variable,
    is_secret_name,
)

_NUMBER = re.compile(r"-?[\d.][\d.,:eE+-]*")
_NAME = re.compile(r"[\w.+-]+")
_SHORT = re.compile(r"-[pk]")  # of many programs a password, a key


def split_command_options(words: Sequence[str]) -> list[list[str]]:
    """Return what stands before the first option, and then each option with its values."""
    options: list[list[str]] = []
    for word in words:
        if _is_option_word(word) or not options:
            options.append([])
        options[-1].append(word)
    return options


def hide_command_secrets(words: Sequence[str], hide: Hide = lambda _: HIDDEN) -> list[str]:
    """Return the words without their secrets: values of `--api-key`, of `-p` and `-k` unless they are numbers, logins, tokens."""
    return [word for option in split_command_options(words) for word in _hide_option_secrets(option, hide)]


def _is_option_word(word: str) -> bool:
    return word.startswith("-") and not _NUMBER.fullmatch(word)


def _hide_option_secrets(option: list[str], hide: Hide) -> Iterator[str]:
    first, *rest = option
    name = first if first.startswith("-") and "=" not in first else ""
    yield _hide_word_secret("", first, hide)
    yield from (_hide_word_secret(name, word, hide) for word in rest)


def _hide_word_secret(option: str, word: str, hide: Hide) -> str:
    if _SHORT.fullmatch(option):
        return word if _NUMBER.fullmatch(word) else hide(word)
    if (login := hide_behind_login_option(option, word, hide)) is not None:
        return login
    if is_secret_name(option):
        return hide_secret_variable(option, word, hide)
    if _SHORT.match(word) and not word.startswith("--"):  # -pWORD, -p=WORD
        value = word[2:].lstrip("=")
        shown = not value or _NUMBER.fullmatch(value)
        return word if shown else word[: len(word) - len(value)] + hide(value)
    name, joint, value = word.partition("=")
    if joint and _NAME.fullmatch(name):  # the whole rest is one value, whatever letters it has
        return f"{name}={hide_secret_variable(name, value, hide)}"
    return hide_secret_variable("", word, hide)
