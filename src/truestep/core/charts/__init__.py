# SPDX-License-Identifier: Apache-2.0
"""Charts as HTML and SVG, for every room that draws curves."""

from importlib import resources


def chart_style() -> str:
    """Return the CSS of charts: colours in light and dark, lines, grid and text."""
    return resources.files(__name__).joinpath("chart.css").read_text("utf-8")
