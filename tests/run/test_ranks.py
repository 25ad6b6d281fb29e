# SPDX-License-Identifier: Apache-2.0
"""What launchers say of a process, and which rows of a batch are its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import truestep as ts
from truestep.engine.processes.batch_row_shares import RankShare
from truestep.run.rank_environment import first_launched_host, launched_rank

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
MEETING = {"MASTER_ADDR": "first", "MASTER_PORT": "1234"}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_NODELIST": "gpu[03-05,9],login1",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}


@pytest.mark.parametrize(
    ("environment", "place", "address", "port"),
    [
        ({**TORCHRUN, **MEETING}, (3, 8, 1), "first", 1234),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2, 1), "127.0.0.1", 29500),  # a shell loop
        (SLURM, (5, 8, 1), "gpu03", 12000 + 123456 % 20000),
        ({**SLURM, **MEETING}, (5, 8, 1), "first", 1234),
        ({**SLURM, **TORCHRUN, **MEETING}, (3, 8, 1), "first", 1234),  # torchrun inside of a job
        (OPENMPI, (1, 4, 1), "127.0.0.1", 29500),
    ],
)
def test_every_launcher_is_read(environment, place, address, port):
    found = launched_rank(environment)
    assert (tuple(found.place), found.address, found.port) == (place, address, port)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {
            name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"
        },  # python in a job, without srun
    ],
)
def test_a_process_that_is_alone_knows_it(environment):
    assert launched_rank(environment) is None


def test_the_old_launchers_argument_is_read(monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py", "--local-rank=1"])
    assert launched_rank({"RANK": "3", "WORLD_SIZE": "4", **MEETING}).place.local_rank == 1
    monkeypatch.setattr("sys.argv", ["train.py", "--local_rank", "0"])
    assert launched_rank({"RANK": "2", "WORLD_SIZE": "4", **MEETING}).place.local_rank == 0


def test_what_is_missing_is_named():
    with pytest.raises(
        ts.OptionError, match=r"RANK=None does not say which this is.*RANK=0 WORLD_SIZE=2 python"
    ):
        launched_rank({"WORLD_SIZE": "2"})
    with pytest.raises(ts.OptionError, match="Set MASTER_ADDR"):
        launched_rank(TORCHRUN)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [("gpu03", "gpu03"), ("a,b", "a"), ("gpu[07,09]", "gpu07"), ("n[1-4]-ib", "n1-ib"), ("", "127.0.0.1")],
)
def test_the_first_host_of_a_list(nodes, host):
    assert first_launched_host(nodes) == host


@given(st.integers(0, 200), st.integers(1, 9))
def test_shares_are_the_whole_in_order_and_as_equal_as_can_be(rows, size):
    parts = [RankShare(rank, size).of(rows) for rank in range(size)]
    assert [row for part in parts for row in range(rows)[part]] == list(range(rows))
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)
