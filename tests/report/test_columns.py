# SPDX-License-Identifier: Apache-2.0
"""Lines read thousands at a time say what they say one by one."""

import io
import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from truestep.report import metric_columns as columns_module
from truestep.report.metric_columns import read_metric_columns
from truestep.report.metrics import MetricsFile, read_metrics

SPOILED = [
    b"\n",
    b'{"step": 1, "epoch": 0\n',
    b'{"step": 1, "epoch": 0, "elapsed_seconds": 0, "values": {"loss": "no number"}}\n',
    b'{"step": 1, "epoch": 0, "elapsed_seconds": 0, "values": {"loss": [1]}}\n',
    b'{"step": 1, "epoch": 0, "elapsed_seconds": 0, "values": ["loss"]}\n',
    b'{"step": null, "epoch": 0, "elapsed_seconds": 0, "values": {}}\n',
    b'{"step": 1, "epoch": 0, "elapsed_seconds": 0, "values": {}},{"step": 2, "values": {}}\n',
    b'{"step": 1, "epoch": 0, "elapsed_seconds": 0, "values": {"\xff": 1}}\n',
]


def write(path, count):
    with MetricsFile(path) as file:
        for step in range(count):
            values = {"loss": 1 / (step + 1), "whole": step, "large": 10**17 + step}
            if step % 5 == 3:
                values = {"accuracy": 0.5, "loss": [math.nan, math.inf, -math.inf][step % 3]}
            file.append(step=step, epoch=step // 7, elapsed_seconds=step / 8, values=values)


def plain(found):
    return {
        "steps": np.concatenate([each.steps for each in found]).tolist(),
        "epochs": np.concatenate([each.epochs for each in found]).tolist(),
        "elapsed": np.concatenate([each.elapsed_seconds for each in found]).tolist(),
        "values": {
            name: [
                (int(step), repr(float(value)))
                for each in found
                if name in each.values
                for step, value in zip(*each.values[name], strict=True)
            ]
            for name in dict.fromkeys(name for each in found for name in each.values)
        },
        "spoiled": sum(each.num_spoiled for each in found),
    }


def one_by_one(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(columns_module, "_columns_as_arrays", lambda columns: None)
        return plain(list(read_metric_columns(path)))


@pytest.mark.parametrize("at_once", [1, 7, 1 << 10])
def test_both_ways_of_reading_agree(at_once, tmp_path, monkeypatch):
    monkeypatch.setattr(columns_module, "LINES_AT_ONCE", at_once)
    write(tmp_path / "metrics.jsonl", 60)
    found = list(read_metric_columns(tmp_path / "metrics.jsonl"))
    assert plain(found) == one_by_one(tmp_path / "metrics.jsonl", monkeypatch)
    assert list(plain(found)["values"]) == ["loss", "whole", "large", "accuracy"]


@pytest.mark.parametrize("spoiled", SPOILED)
def test_a_spoiled_line_costs_itself_alone(spoiled, tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    write(path, 20)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:9], spoiled, *lines[9:]]))
    found = plain(list(read_metric_columns(path)))
    assert found == one_by_one(path, monkeypatch)
    assert found["spoiled"] == 1
    assert found["steps"] == [line.step for line in read_metrics(path)] == list(range(20))


def test_two_halves_of_a_line_are_no_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    line = json.dumps({"step": 1, "epoch": 0, "elapsed_seconds": 0, "values": {"a": 1, "b": 2}}).encode()
    path.write_bytes(line.replace(b', "b"', b'\n"b"') + b"\n" + line + b"," + line + b"\n")
    assert plain(list(read_metric_columns(path)))["spoiled"] == 3


NUMBERS = st.one_of(
    st.sampled_from(
        [
            "0",
            "-0",
            "1e5",
            "1E-3",
            "-2.5",
            "01",
            "+1",
            "1.",
            ".5",
            "1e",
            "--1",
            "",
            "1 2",
            "NaN",
            '"NaN"',
            "true",
            "null",
        ]
    ),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(repr),
)
NAMES = st.sampled_from(["loss", "a", "1", "-1e5", "a: 1", 'a"', "\\", "é", "step", "epoch", "", "values"])
LINES = st.builds(
    lambda step, epoch, seconds, values, end: (
        f'{{"step": {step}, "epoch": {epoch}, "elapsed_seconds": {seconds}, "values": '
        f"{{{', '.join(f'{json.dumps(name, ensure_ascii=False)}: {value}' for name, value in values)}}}{end}"
    ).encode(),
    *[st.integers(0, 9).map(str) | NUMBERS] * 3,
    st.lists(st.tuples(NAMES, NUMBERS), max_size=3),
    st.sampled_from(["}\n"] * 6 + ["}", "\n", ', "media": {}}\n', "}}\n", "} \n", "}\r\n"]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=12))
@example([b'{"step": 0, "epoch": 0, "elapsed_seconds": NaN, "values": {"loss": 0, "loss": 0}}\n'], [0])
@example([b'{"step": null, "epoch": 0, "elapsed_seconds": 0, "values": {"loss": 0, "loss": 0}}\n'], [0])
def test_whatever_the_lines_are_both_ways_agree(kinds, order):
    text = b"".join(kinds[number % len(kinds)] for number in order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_module, "raw_metrics_lines", lambda path: iter(io.BytesIO(text)))
        found = list(read_metric_columns("it"))
        assert not found or plain(found) == one_by_one("it", patch)


def test_lines_of_numbers_are_read_together_and_the_others_one_by_one(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        for step in range(60):
            values = {"loss": 1 / (step + 1)} if step % 7 else {"accuracy": 0.5}
            values = {0: {"loss": math.nan}, 20: {"größe": 1.0}}.get(step, values)
            file.append(step=step, epoch=step // 7, elapsed_seconds=step / 8, values=values)
    alone, decode = [], columns_module.decode_metrics_line
    monkeypatch.setattr(
        columns_module, "decode_metrics_line", lambda line: alone.append(line) or decode(line)
    )
    (found,) = read_metric_columns(path)
    assert found.steps.tolist() == list(range(60))
    assert list(found.values) == ["loss", "accuracy", "größe"]
    assert [b"NaN" in line for line in alone] == [True]
