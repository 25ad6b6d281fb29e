# SPDX-License-Identifier: Apache-2.0
"""The lines of metrics go back with the run, also where it takes an older checkpoint and then a newer one again."""

import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from truestep.report.metrics import MetricsFile, read_metrics
from truestep.report.metrics_rollback import MetricsPrefixMark, truncate_metrics_to_mark


def line(step):
    return {"step": step, "epoch": 0, "elapsed_seconds": 0.0, "values": {}}


def steps(path):
    return [found.step for found in read_metrics(path)]


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def log(path, *numbers):
    with MetricsFile(path) as file:
        for step in numbers:
            file.append(**line(step))
        file.flush()
        return file.mark


def test_what_came_after_is_removed_and_the_run_goes_on_from_there(tmp_path):
    path = tmp_path / "metrics.jsonl"
    mark = log(path, 1, 2, 3)
    log(path, 4, 4, 5)
    assert truncate_metrics_to_mark(path, mark)
    log(path, 6)
    assert steps(path) == [1, 2, 3, 6]
    assert names(tmp_path) == ["metrics.jsonl"]


def test_a_newer_checkpoint_that_was_passed_over_still_finds_its_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    older = log(path, 1, 2)
    newer = log(path, 3, 4)
    log(path, 5)
    assert truncate_metrics_to_mark(path, older, [older, newer])
    log(path, 30, 40)
    assert steps(path) == [1, 2, 30, 40]
    assert truncate_metrics_to_mark(path, newer, [older, newer])
    assert steps(path) == [1, 2, 3, 4]
    assert names(tmp_path) == ["metrics.jsonl"]


def test_lines_that_were_written_again_are_those_of_their_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    older = log(path, 1)
    first = log(path, 2, 3)
    truncate_metrics_to_mark(path, older, [older, first])
    again = log(path, 20, 30)
    truncate_metrics_to_mark(path, first, [older, first, again])
    assert steps(path) == [1, 2, 3]
    truncate_metrics_to_mark(path, again, [older, first, again])
    assert steps(path) == [1, 20, 30]
    truncate_metrics_to_mark(path, again, [older, again])  # the first is pruned: nobody needs its lines
    assert names(tmp_path) == ["metrics.jsonl"]


def test_lost_or_changed_lines_are_told(tmp_path):
    path = tmp_path / "metrics.jsonl"
    mark = log(path, 1, 2)
    log(path, 3)
    path.write_bytes(path.read_bytes().replace(b'"step":1', b'"step":7'))
    assert not truncate_metrics_to_mark(path, mark)
    assert steps(path) == [7, 2]
    path.unlink()
    assert not truncate_metrics_to_mark(path, mark)


@given(st.binary(max_size=300), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_the_mark_is_that_of_all_whole_lines(tmp_path_factory, content, copies):
    path = tmp_path_factory.mktemp("marks") / "metrics.jsonl"
    content = content + bytes(range(256)) * copies * 400
    path.write_bytes(content)
    whole = content[: content.rfind(b"\n") + 1]
    with MetricsFile(path) as file:
        assert file.mark == MetricsPrefixMark(len(whole), zlib.crc32(whole))
        file.append(**line(1))
        file.flush()
        assert file.mark.is_in(path.read_bytes())
        assert file.mark.position == path.stat().st_size


@given(st.lists(st.one_of(st.just("log"), st.just("save"), st.integers(0, 5)), max_size=25))
@settings(max_examples=150, deadline=None)
def test_whatever_is_gone_back_to_each_checkpoint_finds_its_lines(tmp_path_factory, actions):
    folder = tmp_path_factory.mktemp("order")
    path = folder / "metrics.jsonl"
    number, saved = 0, {}
    for action in actions:
        if action == "log":
            number += 1
            log(path, number)
        elif action == "save":
            mark = log(path)
            saved[mark] = steps(path)
        elif saved:
            mark = list(saved)[action % len(saved)]
            assert truncate_metrics_to_mark(path, mark, list(saved))
            assert steps(path) == saved[mark]
    assert len(names(folder)) <= 1 + len(saved)
