# SPDX-License-Identifier: Apache-2.0
"""A chart as an SVG file of its own: heading, plot, legend and notes, readable in light and dark."""

import base64
import textwrap
from collections.abc import Sequence

from truestep.core.charts import chart_css
from truestep.core.charts.chart import Chart, ChartStepAxis, plot_chart_alone
from truestep.core.charts.markup import Html, html_tag

PLOT_HEIGHT = 240
LEFT, RIGHT, LINE = 72, 20, 18
LETTER = 6.6  # pixels that a letter of 12 px takes, on average


def charts_as_svg(
    charts: Sequence[Chart], steps: ChartStepAxis, *, notes: Sequence[str] = (), width: int = 720
) -> str:
    """Return the charts below one another as an SVG document `width` pixels wide, with notes at its end."""
    parts: list[Html] = []
    y = 0
    for chart in charts:
        drawn, y = _chart_elements(chart, steps, y, width)
        parts += drawn
    letters = int((width - 2 * RIGHT) / LETTER)
    for line in [line for note in notes for line in textwrap.wrap(note, letters)]:
        y += LINE
        parts.append(html_tag("text", line, x=RIGHT, y=y))
    y += 16
    ground = html_tag("rect", width=width, height=y, class_="ground")
    style = html_tag("style", Html(chart_css() + chart_css("standalone.css")))
    sizes: dict[str, str | float] = {"width": width, "height": y, "viewBox": f"0 0 {width} {y}"}
    fits = "max-width: 100%; height: auto"
    space = "http://www.w3.org/2000/svg"
    return str(html_tag("svg", style, ground, *parts, xmlns=space, role="img", style=fits, **sizes))


def _chart_elements(chart: Chart, steps: ChartStepAxis, top: int, width: int) -> tuple[list[Html], int]:
    """Return a chart's heading, keys and plot, and where they end."""
    y = top + 26
    parts = [html_tag("text", chart.heading, x=RIGHT, y=y, class_="heading")]
    x = float(RIGHT)
    y += LINE + 4
    for series in chart.series:
        needed = 30 + LETTER * len(series.name)
        if x > RIGHT and x + needed > width - RIGHT:
            x, y = float(RIGHT), y + LINE
        parts.append(html_tag("path", d=f"M{x:.0f} {y - 4}h14", class_=f"key {series.style}"))
        parts.append(html_tag("text", series.name, x=round(x + 22), y=y))
        x += needed
    y += 28
    size: dict[str, float] = {"x": LEFT, "y": y, "width": width - LEFT - RIGHT, "height": PLOT_HEIGHT}
    plot = plot_chart_alone(chart, steps, **size, overflow="visible")
    parts.append(html_tag("g", html_tag("g", plot), class_="plot"))
    return parts, y + PLOT_HEIGHT + 34


def svg_image(svg: str, description: str) -> str:
    """Return an HTML image of an SVG document: in a page of somebody else its styles stay its own."""
    text = base64.b64encode(svg.encode()).decode()
    source = f"data:image/svg+xml;base64,{text}"
    return str(html_tag("img", src=source, alt=description, style="max-width: 100%"))
