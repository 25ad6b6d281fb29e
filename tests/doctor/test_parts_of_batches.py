# SPDX-License-Identifier: Apache-2.0
"""Losses in parts: what is told as the statistic of a part gives another gradient there, and nothing else does."""

import textwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from tests.support.told import told
from truestep.doctor.finding import Severity

CE = "F.cross_entropy(net(x), y, reduction='none')"
HEAD = """
import truestep as ts
run = ts.Run("runs/parts", progress=False)
net = run.learner(nn.Linear(4, 3), lambda p: torch.optim.SGD(p, lr=0.0)LEARNER)

def normalised(values):
    return (values - values.mean()) / (values.std() + 1e-8)

LOSS

for batch in run.batches(run.data(data, batch_size=8)):
    net.update(loss, batchUPDATE)
"""
OF_A_PART = (
    "return CE / len(x)",
    "return CE / x.shape[0]",
    "return CE * (1.0 / y.size(0))",
    "n = len(x)\nlosses = CE\nreturn losses / n",
    "place = torch.arange(len(x)) / len(x)\nreturn CE * place",
    "gain = (gain - gain.mean()) / (gain.std() + 1e-8)\nreturn CE * gain",
    "gain = normalised(gain)\nreturn CE * gain",
    "return CE * (gain - torch.mean(gain)) / torch.std(gain)",
    "std, mean = torch.std_mean(gain)\nreturn CE * (gain - mean) / std",
    "gain -= gain.mean()\ngain /= gain.std()\nreturn CE * gain",
    "gain = (gain - gain.mean(dim=0, keepdim=True)) / gain.std(dim=0, keepdim=True)\nreturn CE * gain",
    "return CE * F.softmax(gain, dim=0)",
    "return CE * gain.argsort(dim=0)",
    "return CE / gain.abs().max()",
    "share = gain.square() / gain.square().sum()\nreturn CE * share",
    "real, fake = net(x), net(u)\nreturn F.softplus(-(real - fake.mean())).sum(1)",
    "z = F.normalize(net(x), dim=1)\nreturn F.cross_entropy(z @ z.T, torch.arange(len(z)), reduction='none')",
    "others = net(x).roll(1, 0)\nreturn (net(x) - others).square().sum(1)",
    "z = net(x)\nreturn torch.cdist(z, z.detach()).sort(dim=1).values[:, 1]",
    "z = net(x)\nreturn (z - z.mean(0)).square().sum(1)",
)
OF_EACH = (
    "print(gain.sum() / len(x))\nreturn CE",
    "return net(x).reshape(len(x), -1).mean(1)",
    "return CE * x.shape[1]",
    "return CE / len(net.weight)",
    "return torch.stack([row.square().sum() / len(row) for row in net(x)])",
    "return CE * gain",
    "return CE + 0.1 * net(x).square().mean()",
    "return CE - net(u).mean()",
    "return CE + net(x).square().mean(1)",
    "return net(x).unsqueeze(1).square().mean(dim=(1, 2))",
    "return CE + 0.01 * net.weight.norm()",
    "mean_of = gain.mean().item()\nreturn CE",
    "if gain.sum() == 0:\n    return gain * net(x).sum(1)\nreturn CE",
    "return torch.stack([net(row).square().mean() for row in x])",
    "return torch.vmap(lambda row: row.std())(net(x))",
    "return (net(x) @ net.weight).square().sum(1)",
    "return (net(x).softmax(-1) * gain[:, None]).sum(-1)",
    "return net(x).norm(2, 1)",
    "return CE * torch.ones(3).mean()",
    "turned = net(x).T\nreturn (turned - turned.mean(0)).square().sum(0)",
    "return net(x).t().softmax(0)[0]",
)


def loss_of(body: str) -> str:
    return "def loss(batch):\n    x, y, gain, u = batch\n    gain = gain.clone()\n" + textwrap.indent(
        body.replace("CE", CE), "    "
    )


def program(loss: str, learner: str = "", update: str = ", micro_batch=2") -> str:
    return HEAD.replace("LOSS", loss).replace("LEARNER", learner).replace("UPDATE", update)


def gradients(body: str, folder) -> list[torch.Tensor]:
    found = []
    for size in (None, 2):
        torch.manual_seed(0)
        run = ts.Run(folder / str(size), progress=False, precision="float64")
        net = run.learner(nn.Linear(4, 3).double(), lambda p: torch.optim.SGD(p, lr=0.0))
        names = {
            "torch": torch,
            "F": F,
            "net": net,
            "ts": ts,
            "normalised": lambda v: (v - v.mean()) / (v.std() + 1e-8),
        }
        exec(loss_of(body), names)
        draw = torch.Generator().manual_seed(1)
        x, gain, u = (
            torch.randn(8, *shape, generator=draw, dtype=torch.double) for shape in ((4,), (), (4,))
        )
        net.update(names["loss"], (x, torch.arange(8) % 3, gain, u), micro_batch=size)
        found.append(net.weight.grad.clone())
        run.close()
    return found


@pytest.mark.sliced(4)
@pytest.mark.parametrize("body", OF_A_PART)
def test_what_is_told_gives_another_gradient_in_parts(body, tmp_path):
    assert set(told("GRAD068", program(loss_of(body)))) == {Severity.RISK}
    whole, parts = gradients(body, tmp_path)
    assert (whole - parts).abs().max() > 1e-3 * whole.abs().max()


@pytest.mark.sliced(4)
@pytest.mark.parametrize("body", OF_EACH)
def test_what_gives_the_same_gradient_in_parts_is_quiet(body, tmp_path):
    assert told("GRAD068", program(loss_of(body))) == []
    whole, parts = gradients(body, tmp_path)
    torch.testing.assert_close(whole, parts, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("learner", "update", "is_told"),
    [
        ("", "", False),
        ("", ", micro_batch=None", False),
        (", micro_batch=4", "", True),
        ("", ", micro_batch='auto'", True),
        (", micro_batch=4", ", decomposable=False", False),
    ],
)
def test_it_is_told_where_the_batch_is_split(learner, update, is_told):
    assert bool(told("GRAD068", program(loss_of(OF_A_PART[0]), learner, update))) is is_told


def test_a_loss_under_a_name_and_one_that_is_normalised_before_its_update():
    loss = "loss = lambda batch: net(batch[0]).sum(1) * (batch[2] - batch[2].mean()) / batch[2].std()"
    assert told("GRAD068", program(loss)) == [Severity.RISK]
    before = program(loss_of("return CE * gain")).replace(
        "batch, micro", "(*batch[:2], normalised(batch[2]), batch[3]), micro"
    )
    assert "normalised(batch[2])" in before
    assert told("GRAD068", before) == []


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("return net(x.transpose(0, 1)).square().mean(1)", False),
        ("each = net(x).permute(1, 2, 0)\n    return each.square().mean(1).sum(1)", False),
        ("return (net(x) - net(x).mean()).square().sum(2).mean(0)", True),
    ],
)
def test_examples_that_do_not_lead(body, is_told):
    loss = f"def loss(batch):\n    x, y = batch\n    {body}"
    assert bool(told("GRAD068", program(loss, update=", split=1, micro_batch=2"))) is is_told
