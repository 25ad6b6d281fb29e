# SPDX-License-Identifier: Apache-2.0
"""Who died first: by the logs of all ranks, whichever the agent noticed first."""

from types import SimpleNamespace

import pytest

import truestep as ts
from truestep.run.launching.agent import LaunchOptions
from truestep.run.launching.failure import describe_process_deaths, process_deaths_by_cause

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/ada/train.py", line 12, in <module>
    net.update(loss, batch)
  File "/home/ada/train.py", line 7, in loss
    raise ValueError("a bad batch")
{error}
"""
CONSEQUENCE = "truestep.core.errors.RankError: This is rank 0, which stops because another one failed."


def failure(rank, code, timestamp, told=None):
    data = {"message": told or "Signal 9 was received"}
    return SimpleNamespace(
        local_rank=rank, pid=100 + rank, exitcode=code, timestamp=timestamp, error_file_data=data
    )


def write(logs, rank, text, attempt=0):
    folder = logs / "job_x" / f"attempt_{attempt}" / str(rank)
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text(text)


def test_the_first_cause_comes_before_what_it_caused(tmp_path):
    write(tmp_path, 0, TRACEBACK.format(error=CONSEQUENCE))
    write(tmp_path, 1, "ValueError: of an earlier attempt")
    write(tmp_path, 1, TRACEBACK.format(error="ValueError: a bad batch"), attempt=1)
    deaths = process_deaths_by_cause({0: failure(0, 1, 5), 1: failure(1, 1, 6)}, tmp_path)
    assert [death.rank for death in deaths] == [1, 0]
    assert describe_process_deaths(deaths).splitlines() == [
        "rank 1 (process 101) died first: ValueError: a bad batch",
        '  at /home/ada/train.py:7, in loss: raise ValueError("a bad batch")',
        f"  its log: {tmp_path}/job_x/attempt_1/1/stderr.log",
        "  stopped because of it: rank 0",
    ]
    assert deaths[0].status == 1


def test_a_rank_that_the_launch_ended_behind_its_own_error_was_first(tmp_path):
    """The agent may notice the others first, and ends the one that has failed while it waits for them."""
    write(tmp_path, 0, TRACEBACK.format(error="KeyError: 'image_17'"))
    write(tmp_path, 1, TRACEBACK.format(error=CONSEQUENCE))
    write(tmp_path, 2, "")
    deaths = process_deaths_by_cause(
        {0: failure(0, -15, 7), 1: failure(1, 1, 5), 2: failure(2, -15, 7)}, tmp_path
    )
    assert deaths[0].rank == 0
    assert "rank 0 (process 100) died first: KeyError: 'image_17'" in describe_process_deaths(deaths)


def test_an_error_that_a_rank_went_on_behind_is_not_first(tmp_path):
    write(tmp_path, 0, TRACEBACK.format(error="OSError: it was logged, and tried again"))
    write(tmp_path, 1, TRACEBACK.format(error="ValueError: a bad batch"))
    deaths = process_deaths_by_cause({0: failure(0, -15, 5), 1: failure(1, 1, 6)}, tmp_path)
    assert [death.rank for death in deaths] == [1, 0]


def test_a_rank_that_hung_was_ended_by_the_launch(tmp_path):
    told = "rank 1 (process 101 on vm) did not come to an update of 'net' within 8 seconds: it is stopped (SIGSTOP). Every rank"
    write(tmp_path, 0, TRACEBACK.format(error=CONSEQUENCE.replace("failed.", f"failed: {told} must.")))
    deaths = process_deaths_by_cause({0: failure(0, 1, 5), 1: failure(1, -9, 36)}, tmp_path)
    assert describe_process_deaths(deaths).splitlines()[0] == (
        f"rank 1 (process 101) died first: {told.partition('. ')[0]} (ended by this launch: SIGKILL)"
    )


def test_who_was_asked_to_stop_is_told_so(tmp_path):
    (death,) = process_deaths_by_cause({0: failure(0, 143, 5)}, tmp_path)
    assert "exit status 143: it was asked to stop (SIGTERM)" in describe_process_deaths([death])


def test_a_signal_is_named_and_gives_the_status(tmp_path):
    (death,) = process_deaths_by_cause({2: failure(2, -9, 1)}, tmp_path)
    assert describe_process_deaths([death]).startswith(
        "rank 2 (process 102) died first: signal SIGKILL (killed; out of memory"
    )
    assert death.status == 137


def test_what_a_function_raised_is_in_torchs_error_file(tmp_path):
    told = {
        "message": "...",
        "extraInfo": {"py_callstack": TRACEBACK.format(error="ValueError: a bad batch")},
    }
    (death,) = process_deaths_by_cause({1: failure(1, 1, 1, told)}, tmp_path)
    assert "ValueError: a bad batch\n  at /home/ada/train.py:7" in describe_process_deaths([death])


def test_an_exit_without_a_word(tmp_path):
    write(tmp_path, 0, "")
    (death,) = process_deaths_by_cause({0: failure(0, 3, 1)}, tmp_path)
    assert "exit status 3, without a traceback" in describe_process_deaths([death])
    assert death.status == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"processes": 0}, "processes=0: give at least 1"),
        ({"processes": 2, "nodes": 2}, "need a place to meet: --rendezvous HOST:PORT"),
        ({"processes": 2, "nodes": 2, "rendezvous": "a:1", "node_rank": 2}, "give at most 1"),
    ],
)
def test_a_launch_that_can_not_be_is_refused(options, message, tmp_path):
    with pytest.raises(ts.OptionError, match=message):
        LaunchOptions(**options, logs=tmp_path)
