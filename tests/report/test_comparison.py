# SPDX-License-Identifier: Apache-2.0
"""Several runs on one page: what differs stands first, axes are shared, and the best value is named."""

import csv
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.html_page import Page
from typer.testing import CliRunner

from truestep.cli.main import app
from truestep.core.errors import OptionError, RunDirectoryError
from truestep.report import metrics, render_report, write_report
from truestep.report.compare import compare_runs
from truestep.report.metrics import read_metrics
from truestep.report.run_record import RunRecord

CONFIGS = st.dictionaries(
    st.sampled_from(["lr", "width", "seed", "betas"]),
    st.one_of(st.integers(0, 2), st.none(), st.just([1, 2])),
)


@pytest.fixture
def make(tmp_path, log):
    """Return the function that makes the folder of a run with a learning rate and its metrics."""

    def make(name, lr, lines):
        folder = log(tmp_path / name, lines)
        config = {"schema_version": 1, "seed": 0, "precision": "float32", "config": {"lr": lr, "width": 16}}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


def losses(factor, steps=range(1, 40)):
    for step in steps:
        values = {"loss": factor / step, "gradient_norm": 1.0}
        yield step, step // 10, values | ({"test_loss": 2 * factor / step} if step % 10 == 0 else {})


@pytest.fixture
def two(make):
    return [make("small", 0.1, losses(1.0)), make("large", 0.5, losses(0.5, range(20, 90)))]


@given(st.lists(CONFIGS, min_size=2, max_size=4))
def test_what_differs_is_what_is_not_the_same_everywhere(configs):
    found = compare_runs(
        [RunRecord(name=str(place), config={"config": each}) for place, each in enumerate(configs)]
    )
    names = {name for each in configs for name in each}
    expected = {name for name in names if len({json.dumps(each.get(name)) for each in configs}) > 1}
    assert {each.setting for each in found.differences} == expected
    for each in found.differences:
        assert each.values == tuple(config.get(each.setting) for config in configs)


def test_differences_stand_before_best_values_and_these_before_curves(two):
    text = Page(render_report(*two)).text
    places = [text.index(word) for word in ("What differs", "lr 0.1 0.5", "Best values", "Loss and metrics")]
    assert places == sorted(places)
    assert "width" not in text[: text.index("Best values")]


def test_runs_share_axes_and_each_has_one_colour_everywhere(two):
    page = Page(render_report(*two))
    charts = [data for data in page.data if "series" in data]
    assert {tuple(chart["x"]) for chart in charts} == {(1, 89)}
    loss = {series["name"]: series["style"] for series in charts[0]["series"]}
    assert loss == {
        "small: loss": "c0", "small: test_loss": "c0 dashed", "large: loss": "c1", "large: test_loss": "c1 dashed",
    }  # fmt: skip
    norm = {series["name"]: series["style"] for series in charts[1]["series"]}
    assert norm == {"small": "c0", "large": "c1"}


def test_many_runs_have_lines_of_their_own(make):
    folders = [make(f"run{place}", place, losses(place + 1.0)) for place in range(9)]
    charts = [data for data in Page(render_report(*folders)).data if "series" in data]
    styles = [series["style"] for series in charts[0]["series"]]
    assert len(set(styles)) == len(styles) == 18


def test_the_best_is_marked_and_nan_is_never_it(make):
    lines = [(step, 0, {"accuracy": value}) for step, value in enumerate((0.5, math.nan, 0.7))]
    worse = make("worse", 1, [*lines, (9, 0, {"accuracy": 0.6})])
    page = Page(render_report(worse, make("better", 2, [(5, 0, {"accuracy": 0.9})])))
    assert [found["data-run"] for found in page.all("td", **{"class": "best"})] == ["better"]
    assert "0.9000 at step 5" in page.text
    assert "0.7000 at step 2" in page.text


def test_it_loads_nothing_and_text_from_files_stays_text(example_runs):
    html = render_report(example_runs["extremes"], example_runs["two learners"], example_runs["plain"])
    page = Page(html)
    assert [found for _, found in page.elements if {"src", "href", "srcset"} & set(found)] == []
    assert page.all("img") == []
    assert "</script><script>alert(1)</script>" in page.text


def test_findings_of_all_runs_come_first_with_the_runs_name(two):
    finding = {
        "severity": "bug",
        "code": "LOSS001",
        "path": "t.py",
        "line": 3,
        "message": "twice",
        "fix": "once",
    }
    (two[1] / "doctor.json").write_text(json.dumps({"findings": [finding]}))
    text = Page(render_report(*two)).text
    assert "large bug LOSS001 t.py:3 twice once" in text
    assert text.index("Findings") < text.index("What differs")
    alone = Page(render_report(two[1])).text
    assert alone.index("bug LOSS001") < alone.index("steps")


def test_runs_of_one_name_are_told_apart(make):
    folders = [make(f"{name}/run", 0.1, losses(1.0)) for name in ("first", "second")]
    assert "first/run · second/run" in Page(render_report(*folders)).text


def test_where_it_is_written_and_what_is_refused(two, tmp_path):
    assert write_report(*two) == tmp_path / "comparison.html"
    assert write_report(*two, to=tmp_path / "mine.html").read_text("utf-8") == render_report(*two)
    with pytest.raises(OptionError, match="twice"):
        write_report(two[0], tmp_path / "large/../small")
    with pytest.raises(RunDirectoryError, match=r"Did you mean '.*small'"):
        write_report(tmp_path / "smal", two[1])
    with pytest.raises(OptionError, match="give the folder"):
        write_report()


def call(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command_says_what_differs_and_which_is_best_and_reads_each_file_once(two, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr(
        metrics, "open_regular_file", lambda path, *flags: opened.append(path) or real(path, *flags)
    )
    shown = call(*two)
    assert shown.exit_code == 0
    assert sorted(opened) == sorted(folder / "metrics.jsonl" for folder in two)
    for words in ("lr", "best test_loss", "Best test_loss: large", f"Report: {tmp_path / 'comparison.html'}"):
        assert words in shown.stdout
    document = json.loads(call(*two, "--json").stdout)
    assert document["differences"] == [{"setting": "lr", "values": [0.1, 0.5]}]
    assert document["best"][0]["metric"] == "test_loss"


real = metrics.open_regular_file


def test_a_folder_of_runs_stands_for_them_and_an_empty_one_is_refused(two, tmp_path):
    assert call(tmp_path, "--json").stdout == call(two[1], two[0], "--json").stdout
    (tmp_path / "nothing").mkdir()
    assert "holds no run" in str(call(tmp_path / "nothing").exception)
    assert list((tmp_path / "nothing").iterdir()) == []


def test_a_configuration_may_hold_what_json_lacks(make):
    folders = [make("nan", math.nan, losses(1.0)), make("inf", math.inf, losses(1.0))]
    document = json.loads(call(*folders, "--json").stdout, parse_constant=pytest.fail)
    assert document["differences"][0]["values"] == ["NaN", "Infinity"]


def test_csv_holds_every_value(two, tmp_path):
    shown = call(*two, "--csv", tmp_path / "all.csv")
    assert shown.exit_code == 0
    with (tmp_path / "all.csv").open(newline="") as file:
        rows = [
            (row["run"], int(row["step"]), row["name"], float(row["value"])) for row in csv.DictReader(file)
        ]
    expected = [
        (folder.name, line.step, name, value)
        for folder in two
        for line in read_metrics(folder / "metrics.jsonl")
        for name, value in line.values.items()
    ]
    assert rows == expected
