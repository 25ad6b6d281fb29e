# SPDX-License-Identifier: Apache-2.0
"""Checks that were taken out: what still names one is passed over, with one line that says why it went."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RetiredCheck:
    """A check that was taken out; its code and its name are never used again."""

    name: str
    reason: str


RETIRED: dict[str, RetiredCheck] = {}


def retired_code(code_or_name: str) -> str | None:
    """Return the code of the retired check of a code (in whatever case) or a name; None if there is none."""
    wanted = code_or_name.upper()
    return next((code for code, check in RETIRED.items() if wanted in (code, check.name.upper())), None)


def retired_codes(beginning: str) -> list[str]:
    """Return the retired codes that begin so, or the one of this name."""
    named = retired_code(beginning)
    return [named] if named else [code for code in RETIRED if code.startswith(beginning.upper())]


def retired_line(code: str) -> str:
    """Return the line that says why a check went."""
    return f"{code} ({RETIRED[code].name}) is retired and passed over: {RETIRED[code].reason}"
