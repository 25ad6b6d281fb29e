# SPDX-License-Identifier: Apache-2.0
"""A schedule plot in a terminal: curves, then a row of landmarks for each."""

import math
from typing import TYPE_CHECKING

from truestep.core.charts.terminal import TerminalChart, TerminalCurve
from truestep.core.rich_imports import Group, RenderableType, Table, Text
from truestep.core.text_formatting import number_text

if TYPE_CHECKING:
    from truestep.model.schedules.plot import ScheduleCurve, SchedulePlot


def schedule_plot_table(plot: "SchedulePlot") -> RenderableType:
    """Return what rich draws."""
    parts: list[RenderableType] = []
    for quantity in plot.quantities:
        curves = plot.of(quantity)
        parts += [
            Text(quantity.capitalize(), "bold"),
            _terminal_chart(plot, curves),
            _landmarks_table(curves),
            Text(),
        ]
    parts += [Text(note, "yellow") for note in plot.notes]
    return Group(*(parts if plot.notes else parts[:-1]))


def _terminal_chart(plot: "SchedulePlot", curves: "list[ScheduleCurve]") -> TerminalChart:
    per_epoch = plot.steps_per_epoch if plot.by == "epochs" else None
    drawn = []
    for each in curves:
        values = [*each.values, *[math.nan] * (plot.num_steps - len(each.values))]
        drawn.append(TerminalCurve(name=each.name, values=values, colour=each.colour))
    if per_epoch:
        return TerminalChart(curves=drawn, first=0, last=plot.num_steps / per_epoch, unit="epoch")
    return TerminalChart(curves=drawn, first=1, last=plot.num_steps, unit="step")


def _landmarks_table(curves: "list[ScheduleCurve]") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for heading in ("first", "warm-up", "peak", "at", "last", "constant from"):
        table.add_column(heading, justify="right", no_wrap=True)
    for curve in curves:
        marks = curve.landmarks
        is_constant = marks.constant_from_step < len(curve.values)
        table.add_row(
            curve.name,
            number_text(marks.first),
            f"{marks.warmup_steps:,}" if marks.warmup_steps else "-",
            number_text(marks.peak),
            f"{marks.peak_step:,}",
            number_text(marks.last),
            f"{marks.constant_from_step:,}" if is_constant else "-",
        )
    return table
