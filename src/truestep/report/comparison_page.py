# SPDX-License-Identifier: Apache-2.0
"""The page of several runs: findings, what differs, best values, and their curves on shared axes."""

from collections.abc import Iterable, Iterator, Sequence

from truestep.core.charts.axes import exact_linear_axis
from truestep.core.charts.chart import NUM_COLOURS, ChartSeries, ChartStepAxis, curve_style
from truestep.core.charts.document import html_document, html_header
from truestep.core.charts.markup import Html, html_tag
from truestep.core.text_formatting import duration_text, number_text
from truestep.report.chart_grouping import metric_group, report_figures
from truestep.report.compare import BestMetricValues, RunComparison, SettingDifference, compare_runs
from truestep.report.findings import report_findings, report_findings_table
from truestep.report.page import curve_sections, report_script, report_style, wide_card
from truestep.report.run_record import RunRecord
from truestep.report.settings_tables import folded_heading, setting_text
from truestep.report.timeline import epoch_timeline

Row = tuple[str, Sequence[str], int | None]
"""A label, a cell for each run, and the number of the best one."""


def comparison_page(records: Sequence[RunRecord]) -> str:
    """Return the whole document; the records' names tell them apart."""
    found = compare_runs(records)
    title = f"{len(records)} runs compared"
    body = [
        html_header("Truestep report", title, " · ".join(found.runs)),
        *_problem_messages(records),
        *_findings_section(records),
        *_setting_differences_table(found),
        *_best_values_table(found),
        *_curves_section(records),
        html_tag("footer", "Drawn from the files of the runs' directories; this page loads nothing else."),
    ]
    return html_document(
        f"{title} · Truestep report",
        html_tag("main", *body),
        epoch_timeline(records),
        style=report_style(),
        script=report_script(),
    )


def _problem_messages(records: Sequence[RunRecord]) -> Iterator[Html]:
    for record in records:
        empty = [] if record.num_lines else ["nothing has been logged yet: metrics.jsonl has no lines."]
        for problem in (*record.problems, *empty):
            yield html_tag("p", f"{record.name}: {problem}", class_="problem", role="note")


def _findings_section(records: Sequence[RunRecord]) -> Iterator[Html]:
    found = [(record.name, each) for record in records for each in report_findings(record)]
    if found:
        yield wide_card("Findings", report_findings_table(found))


def _setting_differences_table(found: RunComparison) -> Iterator[Html]:
    alike = "The settings are the same in all runs."
    said = "No difference of settings is recorded." if found.circumstances else alike
    same = html_tag("p", said, class_="note")
    parts = [_runs_table(found.runs, map(_difference_row, found.differences)) if found.differences else same]
    if found.circumstances:
        heading = folded_heading("Machine, code and automatic choices", len(found.circumstances))
        parts.append(
            html_tag("details", heading, _runs_table(found.runs, map(_difference_row, found.circumstances)))
        )
    yield wide_card("What differs", *parts)


def _difference_row(difference: SettingDifference) -> Row:
    return difference.setting, [setting_text(value) for value in difference.values], None


def _best_values_table(found: RunComparison) -> Iterator[Html]:
    times = [
        f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds) for seconds in found.elapsed_seconds
    ]
    rows: list[Row] = [
        *map(_best_row, found.best),
        ("steps", [f"{step:,}" for step in found.steps], None),
        ("time", times, None),
    ]
    yield wide_card("Best values", _runs_table(found.runs, rows))


def _best_row(found: BestMetricValues) -> Row:
    cells = [f"{number_text(each.value)} at step {each.step:,}" if each else "–" for each in found.values]
    return f"{found.metric} ({found.better})", cells, found.best_run


def _runs_table(runs: Sequence[str], rows: Iterable[Row]) -> Html:
    """Return a table with a column for each run; on a narrow page each cell is a line that names its run."""
    heads = (
        html_tag(
            "th",
            html_tag("span", class_=f"swatch {curve_style(place)}", aria_hidden="true"),
            run,
            scope="col",
        )
        for place, run in enumerate(runs)
    )
    body = (
        html_tag(
            "tr",
            html_tag("th", label, scope="row"),
            *(
                html_tag("td", cell, data_run=run, class_="best" if place == chosen else None)
                for place, (run, cell) in enumerate(zip(runs, cells, strict=True))
            ),
        )
        for label, cells, chosen in rows
    )
    head = html_tag("tr", html_tag("th", html_tag("span", "setting", class_="hidden"), scope="col"), *heads)
    return html_tag(
        "div",
        html_tag("table", html_tag("thead", head), html_tag("tbody", *body), class_="compare"),
        class_="scroll",
    )


def _curves_section(records: Sequence[RunRecord]) -> Iterator[Html]:
    drawn = [record for record in records if record.num_lines]
    if not drawn:
        return
    first, last = min(record.first_step for record in drawn), max(record.last_step for record in drawn)
    starts = {tuple(record.epoch_starts) for record in drawn}
    epochs = starts.pop() if len(starts) == 1 else ()
    figures = report_figures(_group_curves_of_runs(records))
    yield from curve_sections(
        figures, ChartStepAxis(axis=exact_linear_axis(first, last), epoch_starts=epochs)
    )
    words = "A run has one colour on all charts; where a chart shows several of its curves, their lines have other patterns."
    yield html_tag("p", words, class_="note")


def _group_curves_of_runs(records: Sequence[RunRecord]) -> dict[str, list[ChartSeries]]:
    """Return the runs' curves by what they are of; the colour is the run's, the pattern tells training from evaluation."""
    names: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for record in records for name in record.curves):
        names.setdefault(metric_group(name), []).append(name)
    return {
        group: [
            ChartSeries(
                name=record.name if len(members) == 1 else f"{record.name}: {name}",
                curve=record.curves[name],
                colour=place % NUM_COLOURS,
                pattern=pattern + len(members) * (place // NUM_COLOURS),
                run=place,
            )
            for place, record in enumerate(records)
            for pattern, name in enumerate(members)
            if name in record.curves
        ]
        for group, members in names.items()
    }
