# SPDX-License-Identifier: Apache-2.0
"""The words behind the script's name on the command line, as far as they are the script's own."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from truestep.core.command_words import command_options, hide_in_words
from truestep.core.secret_values import Hide
from truestep.run.own_code import source_of_main

_LOCAL_RANK = re.compile(r"--local[_-]rank\b")  # what `python -m torch.distributed.launch` adds
_SHOWN = 150  # letters


def script_arguments(hide: Hide) -> list[str] | None:
    """Return the words that the script was given; None where `sys.argv` is another program's (a notebook's kernel, pytest).

    A launcher's own word is left out, and a secret (`--api-key ...`) hidden.
    """
    script = source_of_main()
    if script is None or not sys.argv or Path(sys.argv[0]).name != script.name:
        return None
    return hide_in_words(list(_own(sys.argv[1:])), hide)


def changed_arguments(saved: list[str] | None, now: list[str] | None) -> list[str]:
    """Return which words differ, in one sentence; nothing where one side is not known."""
    if saved is None or now is None or saved == now:
        return []
    before, after = (Counter(" ".join(option) for option in command_options(words)) for words in (saved, now))
    gone, new = before - after, after - before
    if not gone and not new:  # their order alone: the last of two alike is the one that counts
        gone, new = before, after
    return [f"the command line has {_shown(new)}, before {_shown(gone)}"]


def _own(words: Sequence[str]) -> Iterator[str]:
    """Yield the words but for the launcher's `--local-rank=0` or `--local-rank 0`."""
    for option in command_options(words):
        is_launchers = _LOCAL_RANK.match(option[0])
        yield from option[1 if "=" in option[0] else 2 :] if is_launchers else option


def _shown(options: Counter[str]) -> str:
    text = " ".join(options.elements()) or "nothing"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
