# SPDX-License-Identifier: Apache-2.0
"""What the distributed checks say a fault does is what it does, on two real ranks; the doctor sees one of them at work there."""

import json
from pathlib import Path

import pytest
from support import warm
from support.ranks import environment, free_port, on_ranks

PROGRAM = Path(__file__).parent / "ranks" / "faults.py"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    finished = on_ranks(PROGRAM, folder, seconds=120)
    assert [each.status for each in finished] == [0, 0], finished[0].error[-3000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_dist001_without_set_epoch_every_epoch_has_one_order(found):
    for rank in found:
        (first, again), (one, other) = rank["epoch_not_set"]
        assert first == again
        assert one != other


def test_dist002_without_a_sampler_every_rank_reads_all_the_data(found):
    assert [rank["loader_without_sampler"] for rank in found] == [list(range(8))] * 2


def test_dist005_past_the_wrapper_each_rank_keeps_its_own_gradient(found):
    assert [rank["past_the_wrapper"] for rank in found] == [[1.5, 1.0], [1.5, 2.0]]


def test_dist006_and_dist014_a_layer_without_a_gradient_makes_the_next_forward_raise(found):
    for rank in found:
        sound, unused = rank["layer_unused_under_ddp"]
        assert sound == ""
        assert "Expected to have finished reduction in the prior iteration" in unused
        assert "Expected to have finished reduction in the prior iteration" in rank["layer_drop_under_ddp"]


def test_dist008_a_mean_of_means_counts_a_rank_with_fewer_samples_as_much(found):
    assert [rank["mean_of_means"] for rank in found] == [[0.5, 0.75]] * 2


def test_dist012_a_second_job_finds_the_port_taken(found):
    assert "EADDRINUSE" in found[0]["port_fixed"]


@pytest.mark.parametrize("fault", ["uneven", "collective_on_one_rank"])
def test_dist013_and_dist015_the_rank_that_comes_alone_waits_until_the_time_out(found, fault):
    assert "Timed out" in found[0][fault]
    assert found[1][fault] == ""


SCRIPT = """\
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

torch.manual_seed(0)
dist.init_process_group("gloo")
data = [(torch.randn(4), index % 3) for index in range(32)]
net = nn.parallel.DistributedDataParallel(nn.Linear(4, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
dist.destroy_process_group()
"""


def test_the_doctor_sees_one_order_in_every_epoch_while_the_ranks_train(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    shared = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    started = [
        warm.Process(
            *("-m", "truestep", "doctor", "--json", "train.py"),
            cwd=tmp_path,
            env=environment(**shared, RANK=rank, LOCAL_RANK=rank),
        )
        for rank in range(2)
    ]
    for process in started:
        process.wait()
    first = started[0].output
    document = json.loads(first[first.index("{") :])
    (seen,) = [each for each in document["findings"] if each["code"] == "DIST001"]
    assert seen["line"] == SCRIPT.splitlines().index("sampler = DistributedSampler(data)") + 1
    assert document["processes"][0]["num_steps"] == 12
