# SPDX-License-Identifier: Apache-2.0
"""Charts as HTML and SVG, for every room that draws curves."""

from importlib import resources


def chart_css(sheet: str = "chart.css") -> str:
    """Return the CSS of charts: colours in light and dark, lines, grid and text; or another sheet that lies here."""
    return resources.files(__name__).joinpath(sheet).read_text("utf-8")
