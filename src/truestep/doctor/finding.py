# SPDX-License-Identifier: Apache-2.0
"""What a check reports: one finding, at one line of the user's code, with its evidence."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from truestep.doctor.check_page_urls import check_help
from truestep.doctor.replacement import Replacement

_WRITTEN = re.compile(r"(?P<path>.+?)(?:(?<=\.ipynb):(?P<cell>\d+))?:(?P<line>\d+)", re.DOTALL)


class Severity(StrEnum):
    """How much harm the evidence shows, gravest first."""

    BUG = "bug"  # it computes something other than what was meant, or fails
    RISK = "risk"  # it does so under conditions that can't be seen from here
    ADVICE = "advice"  # it is right, but slow, dated or fragile
    QUESTION = "question"  # only its author knows; one line of confirmation settles it

    @property
    def rank(self) -> int:
        """Return 0 for the gravest, so that findings sort by it."""
        return list(Severity).index(self)


@dataclass(frozen=True)
class Place:
    """A line of the user's code; columns count from 1."""

    path: str
    line: int
    column: int = 1
    cell: int = 0  # of a notebook, from 1; the line then counts within it
    width: int = field(
        default=0, compare=False
    )  # in characters, of what stands there; 0 where only the line is known

    @classmethod
    def of_text(cls, text: str) -> "Place | None":
        """Return the place that is written as `str` writes it, None for any other text."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            return None
        return cls(found["path"], int(found["line"]), cell=int(found["cell"] or 0))

    def within(self) -> str:
        """Return where in its file it is: line and column, and the cell of a notebook."""
        line = f"{self.line}:{self.column}" if self.width else str(self.line)
        return f"cell {self.cell}, {line}" if self.cell else line

    def __str__(self) -> str:
        return f"{self.path}:{self.cell}:{self.line}" if self.cell else f"{self.path}:{self.line}"

    def __lt__(self, other: "Place") -> bool:
        return (self.path, self.cell, self.line, self.column) < (
            other.path,
            other.cell,
            other.line,
            other.column,
        )


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One mistake at one place: what happened, what shows it, and what to write instead."""

    code: str
    name: str
    severity: Severity
    place: Place
    message: str
    why: str
    fix: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seen: str = "read"  # "read" in the source, or "ran": observed while the script ran
    replacement: Replacement | None = None  # the change of the file that mends it, where it can be given

    @property
    def order(self) -> tuple[int, Place, str]:
        """Sort key: the gravest first, then by place."""
        return (self.severity.rank, self.place, self.code)

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity.value,
            "path": self.place.path,
            "cell": self.place.cell or None,
            "line": self.place.line,
            "column": self.place.column,
            "message": self.message,
            "why": self.why,
            "fix": self.fix,
            "help": check_help(self.code),
            "replacement": self.replacement.to_dict() if self.replacement else None,
            "seen": self.seen,
            "evidence": dict(self.evidence),
        }


@dataclass(frozen=True)
class Abstention:
    """A check that came upon its subject and could not tell; the reason is shown, never hidden."""

    code: str
    place: Place
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        place = self.place
        return {
            "code": self.code,
            "path": place.path,
            "cell": place.cell or None,
            "line": place.line,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class CheckFailure:
    """A check that broke on this code: reported as our mistake, the others go on."""

    code: str
    path: str
    error: str

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints of it."""
        return {"code": self.code, "path": self.path, "error": self.error}
