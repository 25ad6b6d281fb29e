# SPDX-License-Identifier: Apache-2.0
"""Where what is done with a mixture shows that it is meant, nobody is asked; its wrong twins are told, or asked about."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
PROGRAM = """
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
other = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
opt = torch.optim.SGD([*net.parameters(), *other.parameters()], lr=0.1)
points = torch.randn(32, 4)
data = TensorDataset(points, torch.arange(32) % 3, points.sum(1) + torch.randn(32))

def loss_of(x, y, gain):
{loss}

for x, y, gain in DataLoader(data, batch_size=8, shuffle=True):
    opt.zero_grad()
    loss_of(x, y, gain).backward()
    opt.step()
"""
RIGHT = {
    "pairs of two networks": """
        left, right = F.normalize(net(x), dim=1), F.normalize(other(x), dim=1)
        return F.cross_entropy(left @ right.t() / 0.2, torch.arange(len(x)))""",
    "both ways": """
        table = F.normalize(net(x), dim=1) @ F.normalize(other(x), dim=1).T * 5
        target = torch.arange(len(x))
        return (F.cross_entropy(table, target) + F.cross_entropy(table.T, target)) / 2""",
    "two views in one table": """
        z = F.normalize(torch.cat([net(x), net(x + 0.1)]), dim=1)
        table = (z @ z.T / 0.5).masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
        return F.cross_entropy(table, torch.arange(len(z)).roll(len(x)))""",
    "by labels": """
        z = F.normalize(net(x), dim=1)
        same = (y[:, None] == y) & ~torch.eye(len(y), dtype=torch.bool)
        shares = F.log_softmax((z @ z.t()).masked_fill(torch.eye(len(y), dtype=torch.bool), -1e9), 1)
        return -(shares * same).sum() / same.sum()""",
    "sigmoids of pairs": """
        table = torch.einsum("id,jd->ij", F.normalize(net(x), dim=1), F.normalize(other(x), dim=1))
        return F.softplus(-table * (2 * torch.eye(len(x)) - 1)).mean()""",
    "hinge of hardest": """
        table = torch.matmul(F.normalize(net(x), dim=1), F.normalize(other(x), dim=1).t())
        rest = table - 10 * torch.eye(len(x))
        return (0.5 + rest.amax(1) - table.diagonal()).clamp(min=0).mean()""",
    "distances of triplets": """
        z = net(x)
        distances, same = torch.cdist(z, z + 1e-3), y[:, None] == y
        far, near = (distances - 9.0 * ~same).amax(1), (distances + 9.0 * same).amin(1)
        return (far - near + 1).clamp(min=0).mean()""",
    "differences of all pairs": """
        risk = net(x)[:, 0]
        before = (gain[:, None] < gain).float()
        return (F.softplus(risk[:, None] - risk) * before).mean()""",
    "advantages": """
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        return -(F.log_softmax(net(x), 1).gather(1, y[:, None]).squeeze(1) * gain).mean()""",
    "clipped ratio": """
        gain = (gain - gain.mean()) / gain.std()
        ratio = (F.log_softmax(net(x), 1)[torch.arange(len(y)), y] + 1).exp()
        return -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()""",
    "returns about their mean": """
        return F.cross_entropy(net(x), y, reduction="none").mul(gain - gain.mean()).mean()""",
    "hardest examples": """
        return F.cross_entropy(net(x), y, reduction="none").topk(len(y) // 2).values.mean()""",
    "ranked risks": """
        order = gain.argsort(descending=True)
        risk = net(x)[:, 0][order]
        return -(risk - risk.logcumsumexp(0)).mean()""",
    "norm of the batch": """
        return F.cross_entropy(F.batch_norm(net(x), None, None, training=True), y)""",
}
WRONG = {
    "attention over the batch": """
        h = net(x)
        return F.cross_entropy((h @ h.t()).softmax(-1) @ h, y)""",
    "attention by einsum": """
        h = net(x)
        weights = torch.einsum("id,jd->ij", h, h).softmax(1)
        return F.cross_entropy(torch.einsum("ij,jd->id", weights, h), y)""",
    "a product for each with each": """
        return (net(x) @ other(x).t()).mean().exp()""",
    "errors of each with each": """
        return ((net(x) @ other(x).t()) - 1).square().mean()""",
    "targets for each column": """
        return ((net(x) @ other(x).t()) - gain).square().mean()""",
    "targets for each row": """
        return ((net(x) @ other(x).t()) - gain[:, None]).square().mean()""",
    "softmax by hand over the batch": """
        e = net(x).exp()
        return F.nll_loss((e / e.sum(0)).log(), y)""",
    "inputs by the batch": """
        x = (x - x.mean(0)) / x.std(0)
        return F.cross_entropy(net(x), y)""",
    "targets by the batch": """
        gain = (gain - gain.mean()) / gain.std()
        return F.mse_loss(net(x)[:, 0], gain)""",
    "outputs by the batch": """
        out = net(x)
        return F.cross_entropy((out - out.mean(0)) / out.std(0), y)""",
    "outputs by the batch's norm": """
        out = net(x)
        return F.cross_entropy(out / out.norm(), y)""",
    "errors spread over one another": """
        return (net(x)[:, 0] - gain[:, None]).square().mean()""",
    "labels spread over others": """
        same = (y[:, None] == (y + 1)[torch.arange(len(y))]).float()
        return (same * F.cross_entropy(net(x), y, reduction="none")).mean()""",
    "softmax along the batch": """
        return F.nll_loss(net(x).log_softmax(0), y)""",
}


def program(loss):
    return PROGRAM.format(loss=loss.strip("\n").replace("        ", "    "))


@pytest.mark.sliced(3)
@pytest.mark.parametrize("way", RIGHT)
def test_a_mixture_that_is_meant_is_not_asked_about(way):
    watch = watched(program(RIGHT[way]), ("REL002",))
    assert watch.findings == []
    outcome, why = watch.experiments.outcome("REL002")
    assert outcome == "not applicable", why
    assert why.startswith("examples are meant to meet: ")


@pytest.mark.sliced(3)
@pytest.mark.parametrize("way", WRONG)
def test_its_wrong_twin_is_told_or_asked_about(way):
    watch = watched(program(WRONG[way]), ("REL002",))
    assert [each.code for each in watch.findings] == ["REL002"]
