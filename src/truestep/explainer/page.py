# SPDX-License-Identifier: Apache-2.0
"""An error's page is its docstring: one sentence, then Means, Raises (or Recorded), Works, Fix, and its Cases.

A case is what is said where the message has certain words, "`these` or `those`:", or "otherwise:". Among the words may be
`group=`, where a group was found, and `group=value`. A case may name facts in braces: groups of the message's pattern and of those
`besides`, or what `case_facts.py` knows of the run; where one is not known, the case is passed over.
"""

import inspect
import re
import textwrap
from dataclasses import dataclass

SECTIONS = ("Means", "Raises", "Recorded", "Works", "Fix", "Cases")
_CASE = re.compile(
    r"(?P<words>otherwise|`[^`]+`(?: (?:or|and) `[^`]+`)*): (?P<says>.+?)(?: Fix: (?P<fix>.+))?"
)


@dataclass(frozen=True)
class ErrorCase:
    """One of an error's causes, as its message tells it."""

    words: str
    says: str
    fix: str  # where it calls for another one than the page's; else ""

    def is_in(self, text: str) -> bool:
        """Whether it is the case that a message tells of."""
        found = [words in text for words in re.findall("`([^`]+)`", self.words)]
        return any(found) if " or " in self.words else all(found)


@dataclass(frozen=True)
class ErrorPage:
    """The parts of an error's docstring."""

    summary: str
    means: str
    raises: str  # code that raises it on a CPU; "" where only a recorded text can be had
    recorded: str  # a text as it was printed somewhere; "" where the code raises it
    works: str  # the code as it should be; "" where it can't run here
    fix: str
    cases: tuple[ErrorCase, ...]

    def cases_to_show(self) -> list[str]:
        """Return the cases as they are shown, those left out that are a fact of the run alone."""
        shown = [f"{each.says}{f' Fix: {each.fix}' if each.fix else ''}" for each in self.cases]
        told = [each for each in shown if re.search(r"[a-z]", re.sub(r"\{\w+\}| Fix:", "", each))]
        return [each.replace("{{", "{").replace("}}", "}") for each in told]


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
    cases = sections.get("Cases", "").strip("\n")
    return ErrorPage(
        summary=" ".join(summary.split()),
        means=prose["Means"],
        raises=_with_final_newline(code["Raises"]),
        recorded=_with_final_newline(code["Recorded"]),
        works=_with_final_newline(code["Works"]),
        fix=prose["Fix"],
        cases=tuple(_parse_case(entry) for entry in re.split(r"\n(?=\S)", textwrap.dedent(cases)) if entry),
    )


def _parse_case(entry: str) -> ErrorCase:
    found = _CASE.fullmatch(" ".join(entry.split()))
    if found is None:
        raise ValueError(f"the case {entry!r} is none: `words`: what it is. Fix: what to do.")
    return ErrorCase(found["words"], found["says"], found["fix"] or "")


def _with_final_newline(code: str) -> str:
    return code.rstrip() + "\n" if code.strip() else ""
