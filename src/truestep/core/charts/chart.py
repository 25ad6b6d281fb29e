# SPDX-License-Identifier: Apache-2.0
"""One chart: a plot that stretches to any width while its text keeps its size, and a table of what it shows.

The curves are drawn in a nested SVG that is stretched; grid, ticks and words stand outside of it and are
placed by per cent. So one SVG serves a phone and a wide screen, without a script.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from truestep.core.charts.axes import ChartAxis, opposite_scale_axis, value_axis
from truestep.core.charts.chart_script_data import DrawnCurve, chart_data
from truestep.core.charts.curve import ChartCurve, ChartExtreme, ChartPoint
from truestep.core.charts.marks import CurveMark, draw_marks
from truestep.core.charts.markup import Html, html_data, html_tag
from truestep.core.text_formatting import number_text

NEAR = 6  # of a drawing 1,000 wide: places no farther apart are one
MARGIN = 1.5
EDGE = 60  # a word so near to an edge begins or ends there
ROOM, WIDE_ROOM = 120, 180  # that a word takes


# `report/drawing.js` does the same where the reader chooses another horizontal axis.
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


SIZE = 1000.0  # of the stretched drawing, in both directions
MARKERS_UP_TO = 60  # a curve of so few values shows each of them
NUM_COLOURS = 6  # in chart.css
PATTERNS = ("", "dashed", "dotted", "dash-dot")  # of lines, in chart.css
MAX_EPOCH_LINES = 20


def curve_style(colour: int, pattern: int = 0) -> str:
    """Return the CSS classes of a colour and a pattern; the pattern is another when the colours have been used up."""
    chosen = PATTERNS[(pattern + colour // NUM_COLOURS) % len(PATTERNS)]
    return f"c{colour % NUM_COLOURS} {chosen}".strip()


@dataclass(frozen=True, kw_only=True)
class ChartSeries:
    """One curve of a chart: its name there, the numbers of its colour and its line's pattern, and of its run on the page."""

    name: str
    curve: ChartCurve
    colour: int = 0
    pattern: int = 0
    run: int = 0

    @property
    def style(self) -> str:
        """The CSS classes of its colour and its pattern."""
        return curve_style(self.colour, self.pattern)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """What a chart shows; values are divided by `divisor` and then have `unit`."""

    title: str
    series: Sequence[ChartSeries]
    unit: str = ""
    divisor: float = 1.0
    may_be_log: bool = True
    from_zero: bool = False
    is_wide: bool = False
    note: str = ""
    wording: Callable[[float], str] = number_text
    marks: Sequence[CurveMark] = ()

    @property
    def slug(self) -> str:
        """A name that may stand in an id."""
        return "chart-" + "".join(letter if letter.isalnum() else "-" for letter in self.title.lower())

    @property
    def heading(self) -> str:
        """Its title with the unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def drawn(self) -> list[DrawnCurve]:
        """Return its curves as they are drawn."""
        return [
            DrawnCurve(
                each.name, each.style, each.run, [_scale_point(p, self.divisor) for p in each.curve.points()]
            )
            for each in self.series
        ]


@dataclass(frozen=True, kw_only=True)
class ChartStepAxis:
    """The x axis, which all charts of a report share, and where epochs begin on it."""

    axis: ChartAxis
    epoch_starts: Sequence[int]
    unit: str = "step"
    labels: Sequence[str] | None = None  # of the axis's ticks, where they are no steps

    def x(self, step: float) -> float:
        """Return where a step lies in the stretched drawing."""
        return round(SIZE * self.axis.position(step), 2)


def draw_chart(chart: Chart, steps: ChartStepAxis) -> Html:
    """Return the chart as a figure."""
    curves = chart.drawn()
    axis, other = _value_axes(chart, curves)
    labels = [*axis.labels(), *(other.labels() if other else ())]
    plot = html_tag(
        "div",
        _plot_element(chart, axis, steps, curves),
        html_data(chart_data(curves, steps.axis, (axis, other), chart.unit), class_="values"),
        class_="plot",
        style=f"--label: {max(map(len, labels), default=0)}",
    )
    scale = html_tag("span", "logarithmic axis", class_="scale") if axis.is_log else None
    caption = html_tag("figcaption", html_tag("h3", chart.heading, id=chart.slug), scale)
    note = html_tag("p", chart.note, class_="note") if chart.note else None
    shape = "card wide" if chart.is_wide else "card"
    return html_tag(
        "figure", caption, plot, _legend_table(chart), note, class_=shape, aria_labelledby=chart.slug
    )


def plot_chart_alone(chart: Chart, steps: ChartStepAxis, **attributes: str | float) -> Html:
    """Return the plot without heading, table and hover values, for a file of its own."""
    curves = chart.drawn()
    return _plot_element(chart, _value_axes(chart, curves)[0], steps, curves, **attributes)


def _scale_point(point: ChartPoint, divisor: float) -> ChartPoint:
    if divisor == 1:
        return point
    mean, low, high = point.mean / divisor, point.low / divisor, point.high / divisor
    return ChartPoint(point.step, mean, low, high, point.num_values, point.num_nan, point.num_infinite)


def _value_axes(chart: Chart, curves: Sequence[DrawnCurve]) -> tuple[ChartAxis, ChartAxis | None]:
    """Return the axis of the values, and the one of the other kind that the reader may choose."""
    finite = [point for curve in curves for point in curve.points if point.is_finite]
    if not finite:
        return ChartAxis(low=0, high=1, is_log=False, ticks=()), None
    least, high = min(point.low for point in finite), max(point.high for point in finite)
    low = min(0.0, least) if chart.from_zero else least
    axis = value_axis(low, high, may_be_log=chart.may_be_log)
    return axis, opposite_scale_axis(axis, least, high)


def _plot_element(
    chart: Chart,
    axis: ChartAxis,
    steps: ChartStepAxis,
    curves: Sequence[DrawnCurve],
    **attributes: str | float,
) -> Html:
    spoiled = _curve_nonfinite_spans(curves, steps)
    drawing = html_tag(
        "svg",
        html_tag("g", *_epoch_lines(steps), *shade_spans(spoiled, SIZE), class_="behind"),
        *(html_tag("g", *_draw_curve(each.points, axis, steps), class_=each.style) for each in curves),
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        width="100%",
        height="100%",
    )
    title = html_tag("title", f"{chart.title} over the steps")
    words = html_tag("desc", _describe_chart(chart))
    grid = html_tag("g", *_grid_lines(axis), class_="values-grid")
    ticks = html_tag("g", *_step_ticks(steps), class_="steps-grid")
    labels = html_tag("g", *label_spans(spoiled, SIZE), class_="spoiled-words")
    marks = draw_marks(chart.marks, steps.axis, axis)
    return html_tag("svg", title, words, grid, ticks, drawing, labels, *marks, role="img", **attributes)


def _describe_chart(chart: Chart) -> str:
    return " ".join(
        f"{series.name}: last {chart.wording(series.curve.last)}{_describe_range(chart, series.curve)}."
        for series in chart.series
    )


def _describe_range(chart: Chart, curve: ChartCurve) -> str:
    if curve.lowest is None or curve.highest is None:
        return ""
    least, most = chart.wording(curve.lowest.value), chart.wording(curve.highest.value)
    return f", min {least} at step {curve.lowest.step:,}, max {most} at step {curve.highest.step:,}"


def _format_percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}%"


def _grid_lines(axis: ChartAxis) -> Iterator[Html]:
    for tick, label in zip(axis.ticks, axis.labels(), strict=True):
        y = _format_percent(1 - axis.position(tick))
        yield html_tag("line", x1=0, x2="100%", y1=y, y2=y, class_="grid")
        yield html_tag("text", label, x=-8, y=y, dy="0.35em", text_anchor="end")


def _step_ticks(steps: ChartStepAxis) -> Iterator[Html]:
    yield html_tag("line", x1=0, x2="100%", y1="100%", y2="100%", class_="base")
    yield html_tag("text", steps.unit, x=-8, y="100%", dy=18, text_anchor="end", class_="quiet")
    for tick, label in zip(steps.axis.ticks, steps.labels or steps.axis.labels(), strict=True):
        place = steps.axis.position(tick)
        anchor = "start" if place < 0.02 else "end" if place > 0.98 else "middle"
        yield html_tag(
            "line", x1=_format_percent(place), x2=_format_percent(place), y1="100%", y2="100%", class_="tick"
        )
        yield html_tag("text", label, x=_format_percent(place), y="100%", dy=18, text_anchor=anchor)


def _epoch_lines(steps: ChartStepAxis) -> Iterator[Html]:
    starts = steps.epoch_starts[1:]
    if len(starts) < MAX_EPOCH_LINES:  # more would be a grey wall
        for start in starts:
            yield html_tag("path", d=f"M{steps.x(start)} 0V{SIZE:.0f}", class_="epoch")


def _draw_curve(points: Sequence[ChartPoint], axis: ChartAxis, steps: ChartStepAxis) -> Iterator[Html]:
    """Draw the band from min to max, the line through the means, and markers where they are few."""

    def y_coordinate(value: float) -> float:
        return round(SIZE * (1 - axis.position(value)), 1)

    few = len(points) <= MARKERS_UP_TO
    band, line, dots = "", "", ""
    for is_finite, group in groupby(points, key=lambda point: point.is_finite):
        if not is_finite:
            continue
        stretch = [(steps.x(point.step), point) for point in group]
        if any(point.low < point.high for _, point in stretch):
            there = " ".join(f"{x} {y_coordinate(point.high)}" for x, point in stretch)
            back = " ".join(f"{x} {y_coordinate(point.low)}" for x, point in reversed(stretch))
            band += f"M{there} {back}Z"
        line += "M" + " ".join(f"{x} {y_coordinate(point.mean)}" for x, point in stretch)
        if few or len(stretch) == 1:
            dots += "".join(f"M{x} {y_coordinate(point.mean)}h.01" for x, point in stretch)
    for path, kind in ((band, "band"), (line, "line"), (dots, "dots")):
        if path:
            yield html_tag("path", d=path, class_=kind)


def _curve_nonfinite_spans(curves: Sequence[DrawnCurve], steps: ChartStepAxis) -> list[NonFiniteSpan]:
    marks = [
        (steps.x(point.step), "NaN" if point.num_nan else "∞")
        for curve in curves
        for point in curve.points
        if point.num_nan or point.num_infinite
    ]
    return nonfinite_spans(marks)


def _legend_table(chart: Chart) -> Html:
    words = (html_tag("span", "curve", class_="hidden"), "last", "min", "max")
    head = html_tag("thead", html_tag("tr", *(html_tag("th", word, scope="col") for word in words)))
    body = html_tag("tbody", *(_legend_row(chart, series) for series in chart.series))
    return html_tag("table", head, body, class_="legend")


def _legend_row(chart: Chart, series: ChartSeries) -> Html:
    curve = series.curve
    swatch = html_tag("span", class_=f"swatch {series.style}", aria_hidden="true")
    spoiled = [
        html_tag("span", f"{count:,} × {word}", class_="badge")
        for count, word in ((curve.num_nan, "NaN"), (curve.num_infinite, "∞"))
        if count
    ]
    name = html_tag("span", swatch, html_tag("span", series.name, *spoiled), class_="name")
    last = chart.wording(curve.last)
    last = last if math.isfinite(curve.last) else html_tag("span", last, class_="badge")
    extremes = _extreme_cell(chart, curve.lowest), _extreme_cell(chart, curve.highest)
    return html_tag("tr", html_tag("th", name, scope="row"), html_tag("td", last), *extremes)


def _extreme_cell(chart: Chart, extreme: ChartExtreme | None) -> Html:
    if extreme is None:
        return html_tag("td", "–")
    return html_tag("td", chart.wording(extreme.value), " ", html_tag("small", f"at {extreme.step:,}"))
