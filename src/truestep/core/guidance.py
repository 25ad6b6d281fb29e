# SPDX-License-Identifier: Apache-2.0
"""What to write for what other libraries call it: one table (`guidance.md`), read once somebody has written such a name."""

import re
import sys
from functools import cache
from pathlib import Path

_FIELD = re.compile(r"\{(\w+)(!r)?\}")
_TORCH = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data")  # fmt: skip


def guidance(place: str, name: str, /, **values: object) -> str | None:
    """Return what to write for a name that stands in a place, "run.NAME" or "ts.Run(NAME=...)"; None where nothing is known.

    `values` are put in for their names in braces; `name` is one of them, by default the name itself.
    """
    known = {"name": name, **values}

    def fill_field(field: re.Match[str]) -> str:
        value = known[field[1]]
        return repr(value) if field[2] else str(value)

    said = guidance_by_name(place).get(name)
    return None if said is None else _FIELD.sub(fill_field, said)


@cache
def guidance_by_name(place: str) -> dict[str, str]:
    """Return all that the table has for one place, by name."""
    phrases: dict[str, str] = {}
    found: dict[str, str] = {}
    for section in Path(__file__).with_suffix(".md").read_text("utf-8").split("\n## ")[1:]:
        places, *rows = section.replace("\n  ", " ").split("\n")
        taken = phrases if places == "phrases" else found if place in places.split(", ") else {}
        for names, parted, said in (row.removeprefix("- ").partition(": ") for row in rows):
            whole = _FIELD.sub(lambda field: phrases.get(field[1], field[0]), said)
            taken.update(dict.fromkeys(names.split() if parted else (), whole))
    return found


def as_sentence(said: str) -> str:
    """Return guidance as a sentence of its own; what begins with code begins as that does."""
    first, _, _ = said.partition(" ")
    begun = said[0].upper() + said[1:] if first.isalpha() else said
    return begun if begun.endswith(".") else f"{begun}."


def option_by_other_name(word: str, known: list[str]) -> str | None:
    """Return which of a function's options another library calls by this word; None where there is none."""
    words = guidance_by_name("NAME=...")
    return next((option for option in known if word in words.get(option, "").split()), None)


def foreign_name_advice(name: str) -> str | None:
    """Return what to write for a name that this package does not have, as a sentence; None where nothing is known."""
    if said := guidance("ts.NAME", name):
        return as_sentence(said)
    homes = (home for home in _TORCH if not name.startswith("_") and hasattr(sys.modules.get(home), name))
    return next((f"It is torch's: {home}.{name}." for home in homes), None)
