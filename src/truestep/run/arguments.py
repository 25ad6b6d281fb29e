# SPDX-License-Identifier: Apache-2.0
"""The words behind the script's name on the command line, as far as they are the script's own."""

import hashlib
import re
import sys
from collections import Counter
from pathlib import Path

from truestep.core.secret_values import hide_secret_variable
from truestep.run.own_code import source_of_main

_LOCAL_RANK = re.compile(r"--local[_-]rank\b")  # what `python -m torch.distributed.launch` adds
_NUMBER = re.compile(r"-[.\d]")
_SHOWN = 150  # letters


def script_arguments() -> list[str] | None:
    """Return the words that the script was given; None where `sys.argv` is another program's (a notebook's kernel, pytest).

    A launcher's own word is left out. A secret (`--api-key ...`) is kept as a hash: enough to compare it.
    """
    script = source_of_main()
    if script is None or not sys.argv or Path(sys.argv[0]).name != script.name:
        return None
    return [word for option in _options(sys.argv[1:]) for word in _without_secret(option)]


def changed_arguments(saved: list[str] | None, now: list[str] | None) -> list[str]:
    """Return which words differ, in one sentence; nothing where one side is not known."""
    if saved is None or now is None or saved == now:
        return []
    before, after = (Counter(" ".join(option) for option in _options(words)) for words in (saved, now))
    gone, new = before - after, after - before
    if not gone and not new:  # their order alone: the last of two alike is the one that counts
        gone, new = before, after
    return [f"the command line has {_shown(new)}, before {_shown(gone)}"]


def _options(words: list[str]) -> list[list[str]]:
    """Return what stands before the first option, and then each option with its values."""
    options: list[list[str]] = []
    for word in words:
        begins = word.startswith("-") and not _NUMBER.match(word)
        if begins or not options:
            options.append([])
        options[-1].append(word)
    return options


def _without_secret(option: list[str]) -> list[str]:
    if _LOCAL_RANK.match(option[0]):
        return option[1:] if "=" in option[0] else option[2:]
    name = option[0].partition("=")[0] if option[0].startswith("-") else ""
    return [_word_without_secret(name, word) for word in option]


def _word_without_secret(option: str, word: str) -> str:
    name, is_given, value = word.partition("=")
    if word.startswith("-"):
        return f"{name}={_hidden(name, value)}" if is_given else word
    hidden = _hidden(option, word)
    return f"{name}={_hidden(name, value)}" if is_given and hidden == word else hidden


def _hidden(name: str, value: str) -> str:
    """Return a value, or a hash of it where it could be a secret, as among the environment's variables."""
    is_secret = hide_secret_variable(name, value) != value
    return f"***{hashlib.sha256(value.encode()).hexdigest()[:8]}" if is_secret else value


def _shown(options: Counter[str]) -> str:
    text = " ".join(options.elements()) or "nothing"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
