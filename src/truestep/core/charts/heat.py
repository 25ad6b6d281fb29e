# SPDX-License-Identifier: Apache-2.0
"""A heat map: a row for each name, the steps from left to right, and a colour for each value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from truestep.core.charts.markup import Html, html_tag
from truestep.core.text_formatting import number_text

MAX_COLUMNS = 64
LEAST_OPACITY = 0.06
ROW_HEIGHT = 18


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """What a heat map shows; `rows[i][j]` is the value of `names[i]` at `steps[j]`, None where there is none."""

    title: str
    names: Sequence[str]
    steps: Sequence[int]
    rows: Sequence[Sequence[float | None]]
    is_log: bool  # orders of magnitude; otherwise shares from 0 to 1


def draw_heat_map(heat: HeatMap) -> Html:
    """Return the map as a figure that stretches to any width; neighbouring steps share a column where there are many."""
    num_columns = min(MAX_COLUMNS, len(heat.steps))
    edges = [round(column * len(heat.steps) / num_columns) for column in range(num_columns + 1)]
    between = list(pairwise(edges))
    rows = [
        [_mean_of_known(row[left:right], is_log=heat.is_log) for left, right in between] for row in heat.rows
    ]
    known = [value for row in rows for value in row if value is not None]
    low, high = (min(known), max(known)) if heat.is_log and known else (0.0, 1.0)
    lines = [_heat_map_row(name, row, low, high, heat) for name, row in zip(heat.names, rows, strict=True)]
    legend = f"pale {_value_text(low, heat)}, full {_value_text(high, heat)}"
    caption = html_tag("figcaption", html_tag("h3", heat.title), html_tag("span", legend, class_="scale"))
    ends = f"step {heat.steps[0]:,}", f"{heat.steps[-1]:,}"
    foot = html_tag("div", *(html_tag("span", end) for end in ends), class_="heat-steps")
    return html_tag("figure", caption, html_tag("div", *lines, class_="heat"), foot, class_="card")


def _mean_of_known(values: Sequence[float | None], *, is_log: bool) -> float | None:
    known = [value for value in values if value is not None and (value > 0 or not is_log)]
    if not known:
        return None
    return sum(map(math.log10, known)) / len(known) if is_log else sum(known) / len(known)


def _heat_map_row(name: str, row: Sequence[float | None], low: float, high: float, heat: HeatMap) -> Html:
    cells = [
        html_tag("rect", x=place, y=0, width=1.02, height=1, fill_opacity=_cell_opacity(value, low, high))
        for place, value in enumerate(row)
        if value is not None
    ]
    last = next((value for value in reversed(row) if value is not None), None)
    words = "–" if last is None else _value_text(last, heat)
    picture = html_tag(
        "svg",
        html_tag("title", f"{name}: {words} at the end"),
        *cells,
        viewBox=f"0 0 {len(row)} 1",
        preserveAspectRatio="none",
        role="img",
        height=ROW_HEIGHT,
    )
    named = html_tag("span", name, class_="heat-name")
    return html_tag("div", named, picture, html_tag("span", words, class_="heat-last"))


def _cell_opacity(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low) if high > low else 1.0
    return round(LEAST_OPACITY + (1 - LEAST_OPACITY) * min(1.0, max(0.0, share)), 3)


def _value_text(value: float, heat: HeatMap) -> str:
    return number_text(10**value) if heat.is_log else f"{value:.0%}"
