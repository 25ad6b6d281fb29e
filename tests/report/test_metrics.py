# SPDX-License-Identifier: Apache-2.0
"""What was logged comes back, whatever happened to the process, the disk or the last line."""

import enum
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.report.metric_columns import read_metric_columns
from truestep.report.metrics import MetricsFile, MetricsLine, is_metric_name, read_metrics


def write(path, steps):
    with MetricsFile(path) as file:
        for step in steps:
            file.append(step=step, epoch=step // 10, elapsed_seconds=step / 8, values={"loss": 1 / step})


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


NAMES = st.text(min_size=1, max_size=12).filter(is_metric_name)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
LINES = st.lists(st.tuples(st.integers(0, 10**9), st.dictionaries(NAMES, NUMBERS, max_size=5)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(LINES)
def test_every_number_and_name_comes_back_exactly(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    with MetricsFile(path) as file:
        for step, values in lines:
            file.append(step=step, epoch=1, elapsed_seconds=0.5, values=values)
    back = list(read_metrics(path))
    assert [line.step for line in back] == [step for step, _ in lines]
    for line, (_, values) in zip(back, lines, strict=True):
        assert line.values.keys() == values.keys()
        assert all(same(line.values[name], values[name]) for name in values)


def test_the_file_is_json_that_any_reader_takes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        values = {"loss": math.nan, "peak": math.inf, "low": -math.inf, "count": 3.0, "norm": 0.5}
        file.append(step=12, epoch=0, elapsed_seconds=3.2, values=values)

    def refuse(word):
        raise AssertionError(word)

    expected = {"loss": "NaN", "peak": "Infinity", "low": "-Infinity", "count": 3, "norm": 0.5}
    line = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    assert line == {"step": 12, "epoch": 0, "elapsed_seconds": 3.2, "values": expected}


class Name(enum.StrEnum):
    """Names of metrics, as people keep them."""

    LOSS = "loss"
    LEVEL = "höhe"


@pytest.mark.parametrize("number", [0.5, math.nan])
def test_names_may_be_members_of_an_enumeration(tmp_path, number):
    with MetricsFile(tmp_path / "metrics.jsonl") as file:
        file.append(step=1, epoch=0, elapsed_seconds=0.5, values={Name.LOSS: number, Name.LEVEL: 1e-5})
    (line,) = read_metrics(tmp_path / "metrics.jsonl")
    assert [*line.values] == ["loss", "höhe"]
    assert same(line.values["loss"], number)
    assert line.values["höhe"] == 1e-5


def test_a_thousand_numbers_take_less_than_half_of_what_json_takes(tmp_path):
    values = {f"metric_{number}": number / 7 for number in range(1000)}
    times = {"json": [], "ours": []}
    with MetricsFile(tmp_path / "metrics.jsonl") as file:
        for step in range(20):
            begin = time.thread_time()
            json.dumps({"step": step, **values})
            times["json"].append(time.thread_time() - begin)
            begin = time.thread_time()
            file.append(step=step, epoch=0, elapsed_seconds=0.5, values=values)
            times["ours"].append(time.thread_time() - begin)
    assert min(times["ours"]) < min(times["json"]) / 2


def test_a_torn_last_line_is_left_out_when_read_and_removed_before_more_is_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [1, 2])
    whole = path.read_bytes()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        complete = whole[:length].count(b"\n")
        assert [line.step for line in read_metrics(path)] == [1, 2][:complete]
        write(path, [7])
        assert [line.step for line in read_metrics(path)] == [*[1, 2][:complete], 7]


def test_a_torn_line_longer_than_a_block_is_removed_too(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [1])
    with path.open("ab") as file:
        file.write(b'{"step": 2, "values": {"' + b"x" * 10_000)
    write(path, [3])
    assert [line.step for line in read_metrics(path)] == [1, 3]


SPOILED = [
    b"\0\0\0\n", b"[1, 2]\n", b"12\n", b'{"step": 1}\n', b'{"step": "x", "epoch": 0, "values": {}}\n',
    b"\xff\xfe\n",
    b'{"step": 1, "epoch": 0, "elapsed_seconds": 0, "values": {"loss": "much"}}\n', b"[" * 100_000 + b"\n",
    b'{"step": Infinity, "epoch": 0, "elapsed_seconds": 0, "values": {}}\n',
    b'{"step": NaN, "epoch": 0, "elapsed_seconds": 0, "values": {}}\n',
]  # fmt: skip


@pytest.mark.parametrize("line", SPOILED, ids=lambda line: repr(line[:24]))
def test_a_spoiled_line_in_the_middle_costs_that_line_alone(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    write(path, [1])
    path.write_bytes(path.read_bytes() + line)
    write(path, [3])
    assert [line.step for line in read_metrics(path)] == [1, 3]


def test_lines_are_in_the_file_after_a_flush_and_after_a_second_without_one(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        file.append(step=1, epoch=0, elapsed_seconds=0.0, values={})
        assert path.read_bytes() == b""
        file.flush()
        assert [line.step for line in read_metrics(path)] == [1]
        monkeypatch.setattr(file, "_next_flush", 0.0)
        file.append(step=2, epoch=0, elapsed_seconds=0.0, values={})
        assert [line.step for line in read_metrics(path)] == [1, 2]


def child(program, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_what_was_flushed_survives_a_kill(tmp_path):
    path = tmp_path / "metrics.jsonl"
    program = """
        import os, pathlib, signal, sys
        from truestep.report.metrics import MetricsFile, is_metric_name
        file = MetricsFile(pathlib.Path(sys.argv[1]))
        for step in range(100):
            file.append(step=step, epoch=0, elapsed_seconds=0.0, values={"loss": 0.5})
            if step == 49:
                file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert child(program, path).returncode == -signal.SIGKILL
    assert [line.step for line in read_metrics(path)] == list(range(50))


def test_a_full_disk_loses_no_line_once_there_is_room_again(tmp_path):
    path = tmp_path / "metrics.jsonl"
    program = """
        import pathlib, resource, sys
        from truestep.core.errors import RunDirectoryError
        from truestep.report.metrics import MetricsFile, is_metric_name
        file = MetricsFile(pathlib.Path(sys.argv[1]))
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))  # no file beyond 500 bytes
        for step in range(20):
            file.append(step=step, epoch=0, elapsed_seconds=0.0, values={"loss": 0.5})
            file.flush()
        try:
            file.flush(durable=True)
        except RunDirectoryError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        file.close()
    """
    result = child(program, path)
    assert result.returncode == 0, result.stderr
    assert "lines of metrics could not be written" in result.stdout
    assert result.stderr.count("tried again") == 1
    assert [line.step for line in read_metrics(path)] == list(range(20))


def test_closing_on_a_full_disk_says_how_many_lines_are_lost(tmp_path):
    program = """
        import pathlib, resource, sys
        from truestep.report.metrics import MetricsFile, is_metric_name
        with MetricsFile(pathlib.Path(sys.argv[1])) as file:
            file.append(step=1, epoch=0, elapsed_seconds=0.0, values={"loss": 0.5})
            resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
    """
    result = child(program, tmp_path / "metrics.jsonl")
    assert "RunDirectoryError" in result.stderr
    assert "1 line of metrics could not be written" in result.stderr
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_closing_twice_is_closing_once(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.close()
    file.close()


def test_a_line_is_plain_data():
    line = MetricsLine(step=1, epoch=0, elapsed_seconds=0.0, values={"loss": 1.0})
    assert line == MetricsLine(step=1, epoch=0, elapsed_seconds=0.0, values={"loss": 1.0})


def test_a_file_without_newlines_is_read_once(tmp_path):
    def seconds(megabytes):
        path = tmp_path / f"{megabytes}.jsonl"
        with path.open("wb") as file:
            file.truncate(megabytes << 20)
        begun = time.thread_time()
        MetricsFile(path).close()
        assert path.stat().st_size == 0
        return time.thread_time() - begun

    seconds(1)
    short, long = min(seconds(8) for _ in range(3)), min(seconds(64) for _ in range(3))
    assert long < 40 * short  # eight times as much; where each piece was joined to all before it, sixty times


def test_a_line_that_never_ends_is_one_spoiled_line(tmp_path, monkeypatch):
    monkeypatch.setattr("truestep.report.metrics.MAX_LINE_BYTES", 1000)
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as file:
        file.append(step=1, epoch=0, elapsed_seconds=0.0, values={"a": 1.0})
    sound = path.read_bytes()
    path.write_bytes(sound + b"\0" * 5000 + b"\n" + sound)
    assert [line.step for line in read_metrics(path)] == [1, 1]
    assert sum(columns.num_spoiled for columns in read_metric_columns(path)) == 1


def test_the_first_durable_flush_makes_the_files_name_last_too(tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def noted(descriptor):
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with MetricsFile(tmp_path / "metrics.jsonl") as file:
        for _ in range(2):
            file.append(step=1, epoch=0, elapsed_seconds=0.0, values={"loss": 0.5})
            file.flush(durable=True)
        assert synced == [file.path, tmp_path, file.path]
        file.path.unlink()
        file.flush(durable=True)
        assert synced[3:] == [file.path, tmp_path]


def test_a_removed_file_comes_back_whole_however_little_each_write_takes(tmp_path, monkeypatch):
    with MetricsFile(tmp_path / "metrics.jsonl") as file:
        for step in range(20):
            file.append(step=step, epoch=0, elapsed_seconds=0.0, values={"loss": 0.5})
        file.flush(durable=True)
        file.path.unlink()
        real = os.pwrite
        monkeypatch.setattr(os, "pwrite", lambda into, text, place: real(into, text[:7], place))
        file.flush(durable=True)
        assert file.mark.is_in(file.path.read_bytes())
    assert [line.step for line in read_metrics(file.path)] == list(range(20))
