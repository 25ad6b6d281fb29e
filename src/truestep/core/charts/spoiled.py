# SPDX-License-Identifier: Apache-2.0
"""Where values were NaN or infinite: places of a drawing that are shaded, and their words.

`report/drawing.js` does the same where the reader chooses another horizontal axis.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from truestep.core.charts.markup import Html, html_tag

NEAR = 6  # of a drawing 1,000 wide: places no farther apart are one
MARGIN = 1.5
EDGE = 60  # a word so near to an edge begins or ends there
ROOM, WIDE_ROOM = 120, 180  # that a word takes


class NonFiniteSpan(NamedTuple):
    """A stretch of the drawing, from left to right, and the word for what was there."""

    left: float
    right: float
    word: str


def nonfinite_spans(marks: Iterable[tuple[float, str]]) -> list[NonFiniteSpan]:
    """Return stretches of places, each with its word; near ones are one."""
    spans: list[NonFiniteSpan] = []
    for place, word in sorted(marks):
        if spans and place - spans[-1].right <= NEAR:
            last = spans[-1]
            spans[-1] = NonFiniteSpan(last.left, place, word if word == last.word else "NaN, ∞")
        else:
            spans.append(NonFiniteSpan(place, place, word))
    return spans


def shade_spans(spans: Sequence[NonFiniteSpan], size: float) -> Iterator[Html]:
    """Yield a rectangle for each stretch, in a drawing so high."""
    for span in spans:
        left, width = round(span.left - MARGIN, 2), round(span.right - span.left + 2 * MARGIN, 2)
        yield html_tag("rect", x=left, y=0, width=width, height=size, class_="spoiled")


def label_spans(spans: Sequence[NonFiniteSpan], size: float) -> Iterator[Html]:
    """Yield the words above the stretches, as far as there is room, in a drawing so wide."""
    free_from = -math.inf
    for span in spans:
        centre = (span.left + span.right) / 2
        if centre < free_from:
            continue
        anchor = "start" if centre < EDGE else "end" if centre > size - EDGE else "middle"
        place = f"{100 * centre / size:.2f}%"
        yield html_tag("text", span.word, x=place, y=0, dy=-5, text_anchor=anchor, class_="bad")
        free_from = centre + (WIDE_ROOM if len(span.word) > 3 else ROOM)
