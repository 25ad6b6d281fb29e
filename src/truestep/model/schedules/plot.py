# SPDX-License-Identifier: Apache-2.0
"""`ts.plot_schedule`: schedules over a training, as curves in a terminal, SVG, CSV and matplotlib."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch.optim import Optimizer

from truestep.core.charts.axes import ChartAxis, exact_linear_axis
from truestep.core.charts.chart import Chart, ChartSeries, ChartStepAxis
from truestep.core.charts.curve import ChartCurve
from truestep.core.charts.marks import CurveMark
from truestep.core.errors import OptionError, check_number, explain_missing_extra
from truestep.core.result_display import RenderableType, Result
from truestep.core.schedule_units import ScheduleFactory
from truestep.core.text_formatting import number_text
from truestep.model.schedules.landmarks import (
    Landmarks,
    landmark_points,
    schedule_landmarks,
    schedule_length_mismatch_text,
)
from truestep.model.schedules.schedule_simulation import (
    Metric,
    ScheduledTraining,
    SteppedSchedule,
    schedule_name,
    step_through,
)

By = Literal["steps", "epochs"]
SUFFIXES = (".svg", ".csv", ".png", ".pdf")


@dataclass(frozen=True, kw_only=True)
class ScheduleCurve:
    """One setting of one parameter group: its value at every update, and what one looks for in it."""

    schedule: str
    group: str
    quantity: str  # "learning rate", "momentum" or "weight decay"
    values: tuple[float, ...]
    landmarks: Landmarks
    name: str  # in a legend: what tells it apart from the others
    colour: int  # the same for all settings of a group


@dataclass(frozen=True, kw_only=True)
class SchedulePlot(Result):
    """Schedules as they move an optimizer's settings; `str`, `save`, `to_svg`, `to_csv` and `to_axes` show them."""

    num_steps: int
    steps_per_epoch: int | None
    by: By
    curves: tuple[ScheduleCurve, ...]
    notes: tuple[str, ...]  # where a schedule's length and the training's do not fit

    @property
    def quantities(self) -> tuple[str, ...]:
        """What is drawn: the learning rate, and what else moves."""
        return tuple(dict.fromkeys(curve.quantity for curve in self.curves))

    def of(self, quantity: str) -> list[ScheduleCurve]:
        """Return the curves of one quantity."""
        return [curve for curve in self.curves if curve.quantity == quantity]

    def to_svg(self, *, width: int = 720) -> str:
        """Return an SVG document, `width` pixels wide, light or dark as its reader prefers."""
        from truestep.core.charts.standalone_svg import charts_as_svg

        charts = [_make_chart(quantity, self.of(quantity)) for quantity in self.quantities]
        return charts_as_svg(
            charts, self._chart_steps(), notes=[*self._schedule_summary_lines(), *self.notes], width=width
        )

    def _chart_steps(self) -> ChartStepAxis:
        per_epoch = self.steps_per_epoch
        axis = exact_linear_axis(1, self.num_steps)
        starts = list(range(1, self.num_steps + 1, per_epoch)) if per_epoch else []
        if self.by == "steps" or not per_epoch:
            return ChartStepAxis(axis=axis, epoch_starts=starts)
        epochs = exact_linear_axis(0, self.num_steps / per_epoch)
        ticks = tuple(max(1.0, tick * per_epoch) for tick in epochs.ticks)
        shown = ChartAxis(low=axis.low, high=axis.high, is_log=False, ticks=ticks)
        return ChartStepAxis(axis=shown, epoch_starts=starts, unit="epoch", labels=epochs.labels())

    def to_csv(self) -> str:
        """Return a table: the update from 1, and a column for each curve."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(
            ["step", *(f"{curve.schedule}/{curve.group}/{curve.quantity}" for curve in self.curves)]
        )
        for step in range(self.num_steps):
            cells = [curve.values[step] if step < len(curve.values) else "" for curve in self.curves]
            table.writerow([step + 1, *cells])
        return text.getvalue()

    def to_axes(self, axes: Any = None) -> Any:
        """Draw the learning rates on matplotlib's `axes` (new ones by default) and return these."""
        if axes is None:
            with explain_missing_extra("plot", "matplotlib"):
                from matplotlib.figure import Figure
            axes = Figure(figsize=(8, 4), layout="constrained").subplots()
        scale = self.steps_per_epoch if self.by == "epochs" and self.steps_per_epoch else 1
        for curve in self.of("learning rate"):
            steps = [step / scale for step in range(1, len(curve.values) + 1)]
            marked = [step - 1 for step in landmark_points(curve.landmarks, len(curve.values))]
            marker = {"marker": "o", "markevery": marked, "markerfacecolor": "none"}
            axes.plot(steps, curve.values, label=curve.name, **marker)
        axes.set(xlabel="epoch" if scale != 1 else "step", ylabel="learning rate")
        if len(self.of("learning rate")) > 1:
            axes.legend()
        return axes

    def save(self, path: str | Path) -> Path:
        """Write the plot: .svg or .csv, or with matplotlib .png or .pdf."""
        from truestep.core.atomic_files import explain_unwritable, replacing_file

        path = Path(path)
        if path.suffix not in SUFFIXES:
            known = ", ".join(SUFFIXES)
            raise OptionError(f"A plot can't be saved as {path.name}: its name ends in one of {known}.")
        text = {".svg": self.to_svg, ".csv": self.to_csv}.get(path.suffix)
        with explain_unwritable("The plot", path), replacing_file(path) as file:
            if text:
                file.write(text().encode())
            else:
                self.to_axes().figure.savefig(file, format=path.suffix[1:])
        return path

    def _schedule_summary_lines(self) -> Iterator[str]:
        for curve in self.of("learning rate"):
            marks = curve.landmarks
            warmup = f"warm-up until {marks.warmup_steps:,}, " if marks.warmup_steps else ""
            is_constant = marks.constant_from_step < len(curve.values)
            end = f", constant from {marks.constant_from_step:,}." if is_constant else "."
            peak = f"peak {number_text(marks.peak)} at {marks.peak_step:,}"
            yield f"{curve.name}: {warmup}{peak}, last {number_text(marks.last)}{end}"

    def __rich__(self) -> RenderableType:
        from truestep.model.schedules.screen import schedule_plot_table

        return schedule_plot_table(self)

    def _repr_html_(self) -> str:
        from truestep.core.charts.standalone_svg import svg_image

        return svg_image(self.to_svg(), " ".join(self._schedule_summary_lines()))


def plot_schedule(
    schedule: ScheduleFactory | Mapping[str, ScheduleFactory] | Sequence[ScheduleFactory],
    num_steps: int,
    *,
    optimizer: "Optimizer | float | None" = None,
    steps_per_epoch: int | None = None,
    by: By = "steps",
    metric: Metric | None = None,
) -> SchedulePlot:
    """Step schedules on a dummy parameter for as long as a training would, and return their curves.

    Every group's learning rate is drawn, and momentum and weight decay where they move. The optimizer that is given, its
    weights and torch's random state are only read.

    Args:
        schedule: a function from an optimizer to a torch scheduler, as `run.learner(schedule=...)` takes it (also
            `ts.per_epoch(...)`); several in a list or by name in a dict.
        num_steps: updates of the training.
        optimizer: the optimizer whose groups are scheduled, or a learning rate; by default 1, so that the curve shows shares
            of the peak.
        steps_per_epoch: updates in an epoch, for schedules that count epochs and for the axis.
        by: what the axis counts.
        metric: for a plateau schedule, the values it would see, as a function of the update.

    Raises:
        OptionError: something else than such a function, or one that makes a schedule of another optimizer.
    """
    _check_num_steps(num_steps, steps_per_epoch, by)
    factories = _factories_by_name(schedule)
    training = ScheduledTraining(num_steps=num_steps, steps_per_epoch=steps_per_epoch, metric=metric)
    stepped = {name: step_through(factory, training, optimizer) for name, factory in factories.items()}
    return plot_stepped_schedules(stepped, training, by)


def plot_stepped_schedules(
    stepped: Mapping[str, SteppedSchedule], training: ScheduledTraining, by: By
) -> SchedulePlot:
    """Return the plot of schedules that have been stepped."""
    curves: tuple[ScheduleCurve, ...] = ()
    colour = 0
    for name, each in stepped.items():
        curves += tuple(_make_schedule_curves(name, each, several=len(stepped) > 1, first_colour=colour))
        colour += len(each.settings)
    notes = []
    for name, each in stepped.items():
        rates = next(curve for curve in curves if curve.schedule == name)
        note = schedule_length_mismatch_text(
            rates.landmarks, training.num_steps, each.ends_after, each.stopped
        )
        notes += [f"{name}: {note}" if len(stepped) > 1 else note] if note else []
    return SchedulePlot(
        num_steps=training.num_steps,
        steps_per_epoch=training.steps_per_epoch,
        by=by,
        curves=curves,
        notes=tuple(notes),
    )


def _check_num_steps(num_steps: int, steps_per_epoch: int | None, by: str) -> None:
    given = {"num_steps": num_steps} | (
        {} if steps_per_epoch is None else {"steps_per_epoch": steps_per_epoch}
    )
    for name, value in given.items():
        check_number("ts.plot_schedule", name, value, example=1000)
        if value < 1:
            raise OptionError(f"{name}={value}: a training has at least one update. Write {name}=1000.")
    if by not in ("steps", "epochs"):
        raise OptionError(f"by={by!r}: the axis counts 'steps' or 'epochs'.")
    if by == "epochs" and steps_per_epoch is None:
        raise OptionError("by='epochs' needs the number of updates in an epoch: steps_per_epoch=500.")


def _factories_by_name(schedule: Any) -> dict[str, ScheduleFactory]:
    if isinstance(schedule, Mapping):
        named = {str(name): factory for name, factory in schedule.items()}
    elif isinstance(schedule, list | tuple):
        named = {}
        for factory in schedule:
            name = schedule_name(factory)
            named[name if name not in named else f"{name} {len(named) + 1}"] = factory
    else:
        named = {schedule_name(schedule): schedule}
    if not named:
        raise OptionError("There is no schedule to plot: the list is empty.")
    return named


def _make_schedule_curves(
    name: str, stepped: SteppedSchedule, *, several: bool, first_colour: int
) -> Iterator[ScheduleCurve]:
    for position, (group, settings) in enumerate(zip(stepped.group_names, stepped.settings, strict=True)):
        for quantity, values in settings.items():
            if not values or (quantity != "learning rate" and min(values) == max(values)):
                continue  # a setting that stays says nothing in a curve
            words = [name] if several else []
            words += [f"group {group}" if group.isdigit() else group] if len(stepped.settings) > 1 else []
            yield ScheduleCurve(
                schedule=name,
                group=group,
                quantity=quantity,
                values=tuple(values),
                landmarks=schedule_landmarks(values),
                name=" · ".join(words) or quantity,
                colour=first_colour + position,
            )


def _make_chart(quantity: str, curves: Sequence[ScheduleCurve]) -> Chart:
    import numpy as np

    series, marks = [], []
    for each in curves:
        curve = ChartCurve(first_step=1)
        curve.add(np.arange(1, len(each.values) + 1), np.array(each.values))
        series.append(ChartSeries(name=each.name, curve=curve, colour=each.colour))
        marks += [
            CurveMark(step=step, value=each.values[step - 1], words=words, style=series[-1].style)
            for step, words in landmark_points(each.landmarks, len(each.values)).items()
        ]
    return Chart(title=quantity.capitalize(), series=series, may_be_log=False, from_zero=True, marks=marks)
