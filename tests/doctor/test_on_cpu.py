# SPDX-License-Identifier: Apache-2.0
"""`truestep doctor --cpu` runs a script that was written for a card, and leaves torch as it was."""

import json
import os

import torch
from support import warm
from torch import nn

from truestep.doctor.runtime.cuda_to_cpu import script_on_cpu

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
torch.cuda.set_device(0)
device = torch.device("cuda:0")
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1, device="cuda")).cuda()
opt = torch.optim.SGD(net.to(device).parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 4), torch.randn(32))
weights = torch.cuda.FloatTensor([1.0])
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
for x, y in DataLoader(data, batch_size=8):
    start.record()
    x, y = x.to("cuda", non_blocking=True), y.pin_memory().cuda(0, non_blocking=True)
    noise = torch.randn(len(x), 4, device=device)
    with torch.cuda.stream(torch.cuda.Stream()):
        loss = (weights * (net(x + 0.01 * noise) - y).square()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    end.record()
    torch.cuda.synchronize()
    start.elapsed_time(end)
torch.save(net.state_dict(), "net.pt")
net.load_state_dict(torch.load("net.pt", map_location="cuda:0"))
print(torch.cuda.memory_allocated() / 2**20, x.device)
"""


def test_a_script_for_a_card_is_watched_on_the_cpu(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = (
        *("-m", "truestep", "doctor", "--cpu", "--preview", "--select", "REL002"),
        *("--report", "report.json", "--json", "train.py"),
    )
    done = warm.run(*command, cwd=tmp_path)
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert report["script"]["error"] is None, done.stderr
    assert "0.0 cpu" in done.stdout + done.stderr
    assert [each["code"] for each in report["findings"]] == ["REL002"]


def test_torch_is_as_it_was_behind_it():
    owners = (torch, torch.Tensor, nn.Module, torch.cuda)
    before = [dict(vars(each)) for each in owners], dict(os.environ)
    with script_on_cpu():
        assert torch.zeros(1, device="cuda").cuda().to(0).device.type == "cpu"
    assert ([dict(vars(each)) for each in owners], dict(os.environ)) == before
