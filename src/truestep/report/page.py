# SPDX-License-Identifier: Apache-2.0
"""The page: headline, curves, choices, configuration and environment."""

import base64
import math
import statistics
import struct
from collections.abc import Callable, Iterator, Sequence
from importlib import resources

from truestep.core.charts.axes import exact_linear_axis
from truestep.core.charts.chart import MAX_EPOCH_LINES, ChartSeries, ChartStepAxis, draw_chart
from truestep.core.charts.curve import ChartCurve
from truestep.core.charts.document import html_document, html_header
from truestep.core.charts.markup import Html, html_tag
from truestep.core.metric_direction import Better
from truestep.core.text_formatting import bytes_text, duration_text, number_text, short_number
from truestep.report.best import best_metric_value, declared_best_metric
from truestep.report.chart_grouping import KNOWN, ReportFigures, group_curves, report_figures
from truestep.report.findings import report_findings, report_findings_table
from truestep.report.layers import report_layers_section
from truestep.report.media_samples import MediaOnPage, ReportedMedia
from truestep.report.run_record import RunRecord
from truestep.report.settings_tables import report_choices_table, settings_table
from truestep.report.timeline import epoch_timeline


def report_page(record: RunRecord) -> str:
    """Return the whole document."""
    groups = group_curves(record)
    figures = report_figures(groups)
    metrics = [group for group in groups if group not in (*KNOWN, "loss")]
    body = [
        html_header("Truestep report", record.name, _run_summary_sentence(record)),
        *(html_tag("p", problem, class_="problem", role="note") for problem in record.problems),
        *_findings_section(record),
        report_headline(record, groups, metrics) if record.num_lines else _nothing_logged_notice(),
        *_curve_cards(record, figures),
        *_samples_section(record),
        *_layers_section(record),
        *_choices_and_settings_tables(record),
        html_tag("footer", "Drawn from the files of the run's directory; this page loads nothing else."),
    ]
    return html_document(
        f"{record.name} · Truestep report",
        html_tag("main", *body),
        epoch_timeline([record]),
        style=report_style(),
        script=report_script(),
    )


def report_style() -> str:
    """Return the CSS of reports."""
    return _read_asset("style.css")


def report_script() -> str:
    """Return the script of reports: axes, smoothing, values under the pointer, CSV."""
    return "".join(map(_read_asset, ("horizontal.js", "drawing.js", "pointer.js", "controls.js")))


def _read_asset(name: str) -> str:
    return resources.files("truestep.report").joinpath(name).read_text("utf-8")


def _run_summary_sentence(record: RunRecord) -> str:
    """Return what one asks first about a run, as far as its files tell."""
    config = record.config if isinstance(record.config, dict) else {}
    environment = record.environment if isinstance(record.environment, dict) else {}
    words = {
        "": config.get("precision"),
        "on ": environment.get("device"),
        "seed ": config.get("seed"),
        "torch ": environment.get("torch"),
    }
    return " · ".join(f"{label}{value}" for label, value in words.items() if isinstance(value, str | int))


def _nothing_logged_notice() -> Html:
    return html_tag(
        "p", "Nothing has been logged yet: metrics.jsonl has no lines.", class_="problem", role="note"
    )


def _curve_cards(record: RunRecord, figures: ReportFigures) -> Iterator[Html]:
    if not record.num_lines:
        return
    axis = exact_linear_axis(record.first_step, record.last_step)
    yield from curve_sections(figures, ChartStepAxis(axis=axis, epoch_starts=record.epoch_starts))
    yield html_tag("p", _chart_legend_text(record, figures), class_="note")


def curve_sections(figures: ReportFigures, steps: ChartStepAxis) -> Iterator[Html]:
    """Yield the sections of charts, on the same steps; what the script puts into the controls works on all of them."""
    yield html_tag("div", id="controls")
    for title, charts in {
        "Loss and metrics": [*figures.loss, *figures.metrics],
        "Training": figures.training,
    }.items():
        if charts:
            yield page_section(title, *(draw_chart(chart, steps) for chart in charts))


def _chart_legend_text(record: RunRecord, figures: ReportFigures) -> str:
    densest = max((curve.values_per_point for curve in record.curves.values()), default=1)
    words = ["Values are drawn as they were logged, without smoothing."]
    if densest > 1:
        words.append(
            f"Where they are dense, up to {densest:,} share a point: the line is their mean, "
            "the band reaches from the min to the max."
        )
    if 1 < len(record.epoch_ends) <= MAX_EPOCH_LINES:
        words.append("Dotted lines mark where epochs begin.")
    if figures.absent:
        words.append(f"Not logged: {', '.join(figures.absent)}.")
    return " ".join(words)


def page_section(title: str, *cards: Html, class_: str = "") -> Html:
    """Return a part of the page under a title."""
    return html_tag(
        "section", html_tag("h2", title), html_tag("div", *cards, class_=f"cards {class_}".strip())
    )


def wide_card(title: str, *parts: Html) -> Html:
    """Return a part of the page that is one card."""
    return page_section(title, html_tag("div", *parts, class_="card"), class_="wide")


def _findings_section(record: RunRecord) -> Iterator[Html]:
    """What may spoil the run stands before everything else."""
    if found := report_findings(record):
        table = report_findings_table([(None, each) for each in found])
        yield wide_card("Findings", table)


def _samples_section(record: RunRecord) -> Iterator[Html]:
    if record.samples:
        yield page_section("Samples", *media_cards(record.samples), class_="wide")


def _layers_section(record: RunRecord) -> Iterator[Html]:
    if record.looks:
        yield page_section("Layers", *report_layers_section(record.looks))


def _choices_and_settings_tables(record: RunRecord) -> Iterator[Html]:
    if record.choices:
        yield wide_card("Choices", report_choices_table(record.choices))
    for title, value in (("Configuration", record.config), ("Environment", record.environment)):
        if value:
            yield wide_card(title, settings_table(value))


SMALL = 192  # pixels; pictures that are narrower are enlarged by a whole factor, each pixel a square


def media_cards(groups: list[ReportedMedia]) -> Iterator[Html]:
    """Return one card a name, its files in the order of their steps."""
    for group in groups:
        yield html_tag(
            "div",
            html_tag("h3", group.name),
            html_tag("div", *(_media_figure(group.name, sample) for sample in group.shown), class_="samples"),
            html_tag("p", _media_left_out_note(group), class_="note")
            if len(group.shown) < group.num_logged
            else None,
            class_="card",
        )


def _media_left_out_note(group: ReportedMedia) -> str:
    folder = group.shown[-1].file.rpartition("/")[0]
    return f"{len(group.shown)} of {group.num_logged:,}, at even distances; all are in {folder}."


def _media_figure(name: str, sample: MediaOnPage) -> Html:
    label = f"{name} at step {sample.step:,}"
    shown = SHOWN[sample.kind](sample.content, label) if sample.content is not None else None
    caption = html_tag(
        "figcaption",
        f"step {sample.step:,}",
        html_tag("span", sample.note, class_="lost") if sample.note else None,
    )
    return html_tag("figure", shown, caption, class_=sample.kind)


def _image_element(content: bytes, label: str) -> Html:
    width, height = struct.unpack(">II", content[16:24].ljust(8, b"\0"))  # of the PNG's header
    factor = max(1, SMALL // max(width, 1))
    return html_tag(
        "img",
        src=_data_url("image/png", content),
        alt=label,
        width=width * factor,
        height=height * factor,
        class_="enlarged" if factor > 1 else None,
    )


def _audio_element(content: bytes, label: str) -> Html:
    return html_tag("audio", controls="controls", aria_label=label, src=_data_url("audio/wav", content))


def _text_element(content: bytes, label: str) -> Html:
    text = content.decode("utf-8", "replace")
    # A browser does not show the first line end in a pre.
    return html_tag("pre", "\n" + text, aria_label=label, tabindex=0)


def _data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


SHOWN: dict[str, Callable[[bytes, str], Html]] = {
    "image": _image_element,
    "audio": _audio_element,
    "text": _text_element,
}


MAX_METRICS, MAX_LOSSES = 3, 3


def report_headline(record: RunRecord, groups: dict[str, list[ChartSeries]], metrics: Sequence[str]) -> Html:
    """Return the tiles: the metric of the best checkpoint, other metrics, losses, steps, time, throughput, memory, warnings."""
    name, way = declared_best_metric(record.config) or ("", None)
    declared = record.curves.get(name)
    others = [series for each in metrics for series in groups[each] if series.curve is not declared]
    losses = [series for series in groups.get("loss", []) if series.curve is not declared]
    tiles = [
        *([] if declared is None else [_metric_tile(ChartSeries(name=name, curve=declared), way=way)]),
        *(_metric_tile(series) for series in others[: MAX_METRICS - (declared is not None)]),
        *(_metric_tile(series, "loss") for series in losses[:MAX_LOSSES]),
        *_steps_and_time_tiles(record),
        *_throughput_and_memory_tiles(groups),
        *_warning_tiles(record, groups),
    ]
    return html_tag("dl", *tiles, class_="tiles", style=f"--columns: {_num_tile_columns(len(tiles))}")


def _num_tile_columns(num_tiles: int) -> int:
    """Return how many tiles to put in a row on a wide screen, so that the last row has the fewest gaps."""
    return min((6, 5, 4), key=lambda columns: -num_tiles % columns)


def _headline_tile(label: str, value: str, note: str = "", *, is_bad: bool = False) -> Html:
    return html_tag(
        "div",
        html_tag("dt", label),
        html_tag("dd", value, class_="value"),
        html_tag("dd", note, class_="about") if note else None,
        class_="tile bad" if is_bad else "tile",
    )


def _metric_tile(series: ChartSeries, suffix: str = "", *, way: Better | None = None) -> Html:
    last, label = (
        series.curve.last,
        series.name if suffix in series.name else f"{series.name} {suffix}".strip(),
    )
    return _headline_tile(
        label,
        number_text(last),
        _best_value_or_range_text(label, series.curve, way),
        is_bad=not math.isfinite(last),
    )


def _best_value_or_range_text(label: str, curve: ChartCurve, way: Better | None) -> str:
    """Name the best value where the run or the name says which way is better, else the range."""
    if curve.lowest is None or curve.highest is None or curve.num_values == 1:
        return ""
    if (extreme := best_metric_value(label, curve, way)) is not None:
        return f"best {number_text(extreme.value)} at step {extreme.step:,}"
    return f"from {number_text(curve.lowest.value)} to {number_text(curve.highest.value)}"


def _steps_and_time_tiles(record: RunRecord) -> Iterator[Html]:
    num_epochs = len(record.epoch_ends)
    yield _headline_tile(
        "steps", f"{record.last_step:,}", f"in {num_epochs:,} epoch{'s' * (num_epochs != 1)}"
    )
    seconds = record.elapsed_seconds
    steps = record.last_step
    note = f"{1000 * seconds / steps:,.3g} ms per step, everything included" if steps else ""
    yield _headline_tile("time", f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds), note)


def _throughput_and_memory_tiles(groups: dict[str, list[ChartSeries]]) -> Iterator[Html]:
    for series in groups.get("samples_per_second", [])[:1]:
        means = [point.mean for point in series.curve.points() if point.is_finite]
        if means:
            yield _headline_tile("throughput", short_number(statistics.median(means)), "samples/s, median")
    peaks = [series.curve.highest.value for series in groups.get("memory_bytes", []) if series.curve.highest]
    if peaks:
        yield _headline_tile("memory", bytes_text(max(peaks)), "peak")


def _warning_tiles(record: RunRecord, groups: dict[str, list[ChartSeries]]) -> Iterator[Html]:
    counts = [
        series.curve.highest.value for series in groups.get("updates_skipped", []) if series.curve.highest
    ]
    if counts:
        num_skipped = sum(counts)
        note = f"{100 * num_skipped / max(1, record.last_step):.2g}% of the steps" if num_skipped else ""
        yield _headline_tile("updates skipped", f"{num_skipped:,.0f}", note, is_bad=num_skipped > 0)
    spoiled = {
        name: curve.num_nan + curve.num_infinite
        for name, curve in record.curves.items()
        if curve.num_nan or curve.num_infinite
    }
    if spoiled:
        where = ", ".join(list(spoiled)[:3]) + (", …" if len(spoiled) > 3 else "")
        yield _headline_tile("NaN or infinite", f"{sum(spoiled.values()):,}", f"in {where}", is_bad=True)
