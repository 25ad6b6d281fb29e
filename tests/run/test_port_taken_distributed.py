# SPDX-License-Identifier: Apache-2.0
"""A port that another program holds is told of in one line on every rank, within the run's time-out."""

import time
from pathlib import Path

import pytest
from support.ranks import environment, finish, free_port
from support.warm import Process

PROGRAM = """
import sys, torch, truestep as ts
ts.Run(sys.argv[1], progress=False, quiet=True, timeout_seconds=float(sys.argv[2]))
print("met", flush=True)
"""
SECONDS = 6


HOLDERS = ["mute", "closes", "http", "chatters", "full", "store", "store_of_a_run"]


def start(tmp_path, port, ranks=(0, 1), seconds=SECONDS):
    (tmp_path / "program.py").write_text(PROGRAM)
    return [
        Process(
            tmp_path / "program.py",
            tmp_path / "run",
            seconds,
            env=environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, MASTER_PORT=port),
        )
        for rank in ranks
    ]


@pytest.mark.sliced(3)
@pytest.mark.parametrize("hold", HOLDERS)
def test_a_port_of_another_program_is_told_of_on_every_rank_in_time(tmp_path, hold):
    port = free_port()
    holder = Process(
        Path(__file__).parent / "programs" / "holds_port.py", tmp_path, hold, port, env=environment()
    )
    while not (tmp_path / "holds").exists():
        time.sleep(0.05)
    begin = time.monotonic()
    ended = finish(start(tmp_path, port), 3 * SECONDS)
    seconds = time.monotonic() - begin
    holder.kill()
    holder.wait()
    assert seconds < SECONDS + 6  # to start a process takes its time, too
    for rank, each in enumerate(ended):
        assert each.status == 1, each.error
        last = each.error.strip().splitlines()[-1]
        assert f"OptionError: Rank {rank} of 2 could not meet the others at 127.0.0.1:{port} (" in last
        assert "choose another MASTER_PORT" in last


def test_a_rank_that_comes_late_is_waited_for(tmp_path):
    port = free_port()
    early = start(tmp_path, port, ranks=[1], seconds=4)
    time.sleep(7)
    ended = finish([*start(tmp_path, port, ranks=[0], seconds=4), *early], 30)
    assert [each.out for each in ended] == ["met\n"] * 2, ended
    assert not ended[1].error
