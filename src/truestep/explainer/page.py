# SPDX-License-Identifier: Apache-2.0
"""An error's page is its docstring: one sentence, then Means, Raises (or Recorded), Works and Fix."""

import inspect
import re
import textwrap
from dataclasses import dataclass

SECTIONS = ("Means", "Raises", "Recorded", "Works", "Fix")


@dataclass(frozen=True)
class ErrorPage:
    """The parts of an error's docstring."""

    summary: str
    means: str
    raises: str  # code that raises it on a CPU; "" where only a recorded text can be had
    recorded: str  # a text as it was printed somewhere; "" where the code raises it
    works: str  # the code as it should be; "" where it can't run here
    fix: str


def parse_error_page(docstring: str) -> ErrorPage:
    """Split a docstring into its page.

    Raises:
        ValueError: a section is missing or empty.
    """
    text = inspect.cleandoc(docstring)
    summary, *pieces = re.split(rf"^({'|'.join(SECTIONS)}):", text, flags=re.MULTILINE)
    sections = dict(zip(pieces[::2], pieces[1::2], strict=True))
    missing = {"Means", "Fix", "Raises", "Recorded"} - {name for name in sections if sections[name].strip()}
    if missing not in ({"Raises"}, {"Recorded"}):
        raise ValueError(f"the page {summary.strip()!r} needs Means, Fix, and Raises or Recorded")
    prose = {name: " ".join(sections[name].split()) for name in ("Means", "Fix")}
    code = {
        name: textwrap.dedent(sections.get(name, "").strip("\n")) for name in ("Raises", "Recorded", "Works")
    }
    return ErrorPage(
        summary=" ".join(summary.split()),
        means=prose["Means"],
        raises=_ended(code["Raises"]),
        recorded=_ended(code["Recorded"]),
        works=_ended(code["Works"]),
        fix=prose["Fix"],
    )


def _ended(code: str) -> str:
    return code.rstrip() + "\n" if code.strip() else ""
