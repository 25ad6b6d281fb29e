# SPDX-License-Identifier: Apache-2.0
"""What a self-check found: a table that can be pasted into an issue."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from truestep.core.results import RenderableType, Result

Outcome = Literal["passed", "FAILED", "measured", "does not apply"]


class Seen(NamedTuple):
    """What one check saw."""

    outcome: Outcome
    says: str


def passed_if(holds: bool, says: str) -> Seen:
    """Return what a check saw, passed where something holds."""
    return Seen("passed" if holds else "FAILED", says)


@dataclass(frozen=True)
class SelfCheckRow:
    """One check, with what it saw; `says` gives the reason where it does not apply."""

    name: str
    outcome: Outcome
    says: str
    seconds: float


@dataclass(frozen=True)
class SelfCheckReport(Result):
    """All checks of a device, in order."""

    device: str
    facts: dict[str, str]
    rows: tuple[SelfCheckRow, ...]

    @property
    def failed(self) -> tuple[SelfCheckRow, ...]:
        """The checks that found something wrong."""
        return tuple(row for row in self.rows if row.outcome == "FAILED")

    def __rich__(self) -> RenderableType:
        """Return a table in Markdown, whose lines are never broken."""
        from rich.text import Text

        lines = [", ".join(f"{name} {value}" for name, value in self.facts.items()), ""]
        lines += ["| check | outcome | what was seen | seconds |", "|---|---|---|---|"]
        lines += [
            f"| {row.name} | {row.outcome} | {row.says.replace('|', '/')} | {row.seconds:.1f} |"
            for row in self.rows
        ]
        counts = [f"{sum(row.outcome == kind for row in self.rows)} {kind}" for kind in _KINDS]
        return Text("\n".join([*lines, "", ", ".join(counts)]), no_wrap=True, overflow="ignore")


_KINDS: tuple[Outcome, ...] = ("passed", "FAILED", "measured", "does not apply")
