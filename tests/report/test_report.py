# SPDX-License-Identifier: Apache-2.0
"""The report shows what the files hold, whatever they hold, and needs nothing but itself."""

import json
import math
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.html_page import Page

from truestep.core.errors import RunDirectoryError
from truestep.report import render_report, write_report
from truestep.report.metrics import MetricsFile

NAMES = ["plain", "two learners", "three lines", "extremes"]


@pytest.fixture
def page(example_runs):
    return lambda name: Page(render_report(example_runs[name]))


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_nothing_from_anywhere(example_runs, name):
    html = render_report(example_runs[name])
    page = Page(html)
    assert not re.search(r"https?://|@import|url\(", html.replace("http://www.w3.org", ""))
    assert [found for _, found in page.elements if {"src", "href", "srcset"} & set(found)] == []
    assert len(page.all("script", type=None)) == 0
    assert sum("type" not in found for found in page.all("script")) == 1


def test_it_is_a_function_of_the_files_alone(example_runs, tmp_path, monkeypatch):
    folder = example_runs["plain"]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    first = render_report(folder)
    monkeypatch.chdir(tmp_path)
    assert render_report(folder) == first
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_every_section_is_there_with_its_words(page):
    text = page("plain").text
    for words in (
        "Loss and metrics", "accuracy", "Learning rate", "Gradient norm", "Throughput (samples/s)", "Memory (MiB)",
        "updates skipped 0", "Choices", "the fused AdamW took 41 µs", "Configuration", "AdamW",
        "Environment", "package-7", "steps 2,000", "in 20 epochs", "best 0.9700 at step 2,000",
    ):  # fmt: skip
        assert words in text, words


@pytest.mark.parametrize(("mode", "best"), [("min", "best 1 at step 2"), ("max", "best 3 at step 3")])
def test_what_the_run_saves_its_best_by_comes_first_and_is_judged_as_it_says(tmp_path, log, mode, best):
    values = {1: 2.0, 2: 1.0, 3: 3.0}
    lines = [
        (step, 0, {"accuracy": value, "f1": value, "auc": value, "far": value})
        for step, value in values.items()
    ]
    folder = log(tmp_path / "run", lines)
    (folder / "config.json").write_text(json.dumps({"best": {"metric": "far", "mode": mode}}), "utf-8")
    (tiles,) = re.findall(r'<dl class="tiles".*?</dl>', render_report(folder), re.DOTALL)
    names = re.findall(r"<dt>(.*?)</dt>", tiles)
    assert names[:3] == ["far", "accuracy", "f1"]
    assert best in tiles


def test_test_loss_and_loss_share_their_axes_and_evaluations_are_markers(page):
    seen = page("plain")
    loss = next(
        data for data in seen.data if [s["name"] for s in data.get("series", [])] == ["loss", "test_loss"]
    )
    assert len(loss["series"][1]["steps"]) == 20
    dots = [found["d"].count("M") for found in seen.all("path", **{"class": "dots"})]
    assert dots == [20, 20]  # test_loss and accuracy


def test_learners_have_curves_of_their_own_names(page):
    text = page("two learners").text
    assert "generator loss" in text
    assert "discriminator loss" in text


def test_a_learner_has_one_colour_on_every_chart(page):
    seen = page("two learners")
    styles = {}
    for data in seen.data:
        for series in data.get("series", []):
            styles.setdefault(series["name"], set()).add(series["style"])
    assert styles["generator"] == {"c1"}
    assert styles["discriminator"] == {"c0"}


def test_more_curves_than_colours_are_dashed(tmp_path, log):
    names = [f"layer{index}/mean" for index in range(8)]
    seen = Page(
        render_report(log(tmp_path / "run", [(step, 0, dict.fromkeys(names, 1.0)) for step in (1, 2)]))
    )
    styles = [series["style"] for data in seen.data for series in data.get("series", [])]
    assert len(set(styles)) == 8


def test_nan_is_a_gap_that_is_marked_and_counted(page):
    seen = page("two learners")
    assert "200 × NaN" in seen.text
    assert "1 × ∞" in seen.text
    assert "NaN or infinite 207" in seen.text
    assert len(seen.all("rect", **{"class": "spoiled"})) >= 3
    generator = seen.all("path", **{"class": "line"})[1]["d"]
    assert generator.count("M") > 1


def test_a_metric_that_is_only_nan_is_shown_as_that(tmp_path, log):
    seen = Page(
        render_report(log(tmp_path / "run", [(1, 0, {"loss": math.nan}), (2, 0, {"loss": math.nan})]))
    )
    assert "2 × NaN" in seen.text
    assert "loss NaN" in seen.text
    assert seen.all("path", **{"class": "line"}) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_drawing_holds_a_number_that_svg_lacks(page, name):
    for _, found in page(name).elements:
        for key in ("d", "x", "y", "x1", "x2", "y1", "y2", "width", "height"):
            assert not re.search(r"nan|inf|e[+-]?\d", str(found.get(key, ""))), found


def test_text_from_the_files_stays_text(page):
    seen = page("extremes")
    assert seen.all("img") == []
    assert seen.all("b") == [{}]  # the value of the one choice
    assert "<img src=x onerror=alert(2)>" in seen.text
    assert "</script><script>alert(1)</script>" in seen.text


def test_an_empty_folder_and_missing_files_make_a_page_that_says_so(tmp_path, log):
    assert "Nothing has been logged yet" in Page(render_report(tmp_path)).text
    text = Page(render_report(log(tmp_path / "run", [(1, 0, {"score": 0.5})]))).text
    assert "Not logged: loss, learning rate, gradient norm" in text


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    for make in (render_report, write_report):
        with pytest.raises(RunDirectoryError, match=r"no folder .*typo"):
            make(tmp_path / "typo")


@pytest.mark.parametrize(
    "spoiled", [b"{", b"\xff\xfe", b"[" * 100_000, b"[1, 2]", b'"text"', b"12", b"null", b"{}"]
)
def test_damaged_files_cost_their_own_section(tmp_path, log, spoiled):
    folder = log(tmp_path / "run", [(1, 0, {"loss": 0.5})])
    for name in ("config.json", "environment.json", "choices.json"):
        (folder / name).write_bytes(spoiled)
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'nonsense\n{"step": 3, "ep')
    text = Page(render_report(folder)).text
    assert "2 lines of metrics.jsonl could not be read" in text
    assert "loss 0.5000" in text


VALUES = st.dictionaries(
    st.sampled_from(["loss", "a/loss", "accuracy", "memory_bytes", "updates_skipped", "learning_rate"])
    | st.text(max_size=5),
    st.floats(allow_nan=True, allow_infinity=True),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 50), VALUES), max_size=30))
def test_any_metrics_make_a_page(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("run")
    with MetricsFile(folder / "metrics.jsonl") as file:
        for step, epoch, values in rows:
            file.append(step=step, epoch=epoch, elapsed_seconds=1.0, values=values)
    Page(render_report(folder))


def test_a_long_run_makes_a_small_page_that_keeps_its_spike(tmp_path, log):
    rows = ((step, 0, {"loss": 77.75 if step == 54_321 else 0.5 + step % 7}) for step in range(100_000))
    html = render_report(log(tmp_path / "run", rows))
    assert len(html) < 150_000
    assert "77.75 at 54,321" in Page(html).text
    assert (
        max(high for data in Page(html).data for s in data.get("series", []) for high in s.get("high", []))
        == 77.75
    )


def test_writing_replaces_the_old_report_and_leaves_nothing_else(tmp_path, log):
    folder = log(tmp_path / "run", [(1, 0, {"loss": 0.5})])
    (folder / "report.html").write_text("old")
    path = write_report(folder)
    assert path == folder / "report.html"
    assert path.read_text("utf-8") == render_report(folder)
    assert {entry.name for entry in folder.iterdir()} == {"metrics.jsonl", "report.html"}
    assert path.stat().st_mode & 0o777 == (folder / "metrics.jsonl").stat().st_mode & 0o777


def test_a_report_that_could_not_be_written_leaves_the_old_one(tmp_path, log, monkeypatch):
    folder = log(tmp_path / "run", [(1, 0, {"loss": 0.5})])
    write_report(folder)
    old = (folder / "report.html").read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == old
    assert {entry.name for entry in folder.iterdir()} == {"metrics.jsonl", "report.html"}
