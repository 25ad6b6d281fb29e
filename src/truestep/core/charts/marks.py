# SPDX-License-Identifier: Apache-2.0
"""Marks on a chart's curves: a ring, and words beside it where there is room."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from truestep.core.charts.axes import ChartAxis
from truestep.core.charts.markup import Html, html_tag

LETTER = 0.011  # of the plot's width, that a letter takes on a narrow page
LINE = 0.1  # of the plot's height, that a line of words takes


@dataclass(frozen=True, kw_only=True)
class CurveMark:
    """A point of a curve that is worth a word, and the CSS classes of that curve."""

    step: float
    value: float
    words: str
    style: str


def draw_marks(marks: Sequence[CurveMark], steps: ChartAxis, values: ChartAxis) -> Iterator[Html]:
    """Yield the marks; words that would lie on others are left to the ring's title."""
    taken: list[tuple[float, float, float]] = []
    for mark in marks:
        x, y = steps.position(mark.step), 1 - values.position(mark.value)
        place = f"{x:.2%}", f"{y:.2%}"
        title = html_tag("title", mark.words)
        yield html_tag("circle", title, cx=place[0], cy=place[1], r=4, class_=f"mark {mark.style}")
        width = LETTER * len(mark.words)
        left = min(max(x - width / 2, 0), max(1 - width, 0))
        if all(left >= end or left + width <= begin or abs(y - line) >= LINE for begin, end, line in taken):
            taken.append((left, left + width, y))
            anchor = "start" if x < width / 2 else "end" if x > 1 - width / 2 else "middle"
            at = {"x": place[0], "y": place[1], "text_anchor": anchor}
            yield html_tag("text", mark.words, **at, dy=-9, class_="mark")
