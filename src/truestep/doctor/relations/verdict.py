# SPDX-License-Identifier: Apache-2.0
"""What was found of one relation: held, broken, a question, or not tried."""

from dataclasses import dataclass
from typing import Literal

from truestep.core.text_formatting import number_text

RelationOutcome = Literal["held", "broken", "question", "not tried"]


@dataclass(frozen=True)
class Verdict:
    """What was found of one relation.

    Attributes:
        relation: its name, as in "permuted"; of one part of the batch or the weights, "item: batch[1]".
        outcome: "held", "broken", "question" (broken, and right under a usual meaning) or "not tried".
        expected: the number on one side of the relation; None where it was not tried.
        found: the number on the other side.
        unit: what the two numbers are.
        is_other: whether the found number must differ from the expected one, and not be it.
        why: why it was not tried, or what a broken one means and what to write.
        place: the line, operation and layer that break it, where they are known.
    """

    relation: str
    outcome: RelationOutcome
    why: str = ""
    expected: float | None = None
    found: float | None = None
    unit: str = ""
    place: str | None = None
    is_other: bool = False

    @property
    def numbers(self) -> str:
        """Both numbers with what they are."""
        if self.expected is None or self.found is None:
            return ""
        wanted = f"{'more than ' if self.is_other else ''}{number_text(self.expected)}"
        return f"{self.unit} {number_text(self.found)}, expected {wanted}".strip()
