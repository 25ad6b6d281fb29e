# SPDX-License-Identifier: Apache-2.0
"""What other optimizers, models and graphs of a loop have to do with a mistake: they hide none, and make none of what is right."""

import pytest

from truestep.doctor.linting import read_text
from truestep.doctor.page import PRELUDE

GAN = """
G, D = nn.Linear(4, 3), nn.Linear(3, 1)
opt_g = torch.optim.SGD(G.parameters(), lr=0.1)
opt_d = torch.optim.SGD(D.parameters(), lr=0.1)
for z, real in loader:
    opt_d.zero_grad()
    opt_g.zero_grad()
    fake = G(z)
"""

RIGHT = {
    "a graph that the generator's loss goes back through, too": (
        "GRAD011",
        GAN
        + """
    (D(fake).mean() - D(real).mean()).backward(retain_graph=True)
    opt_d.step()
    (-D(fake).mean()).backward()
    opt_g.step()
""",
    ),
    "a graph that a function behind the step reads": (
        "GRAD011",
        GAN
        + """
    def second():
        return -fake.mean()
    D(fake).mean().backward(retain_graph=True)
    opt_d.step()
    second().backward()
    opt_g.step()
""",
    ),
    "a graph that is kept in a list": (
        "GRAD011",
        GAN
        + """
    kept = []
    kept.append(fake)
    D(fake).mean().backward(retain_graph=True)
    opt_d.step()
    sum(each.mean() for each in kept).backward()
    opt_g.step()
""",
    ),
    "gradients of the generator clipped behind the critic's step": (
        "GRAD008",
        GAN
        + """
    (D(fake).mean() - D(real).mean()).backward()
    opt_d.step()
    nn.utils.clip_grad_norm_(G.parameters(), 1.0)
    opt_g.step()
""",
    ),
    "another optimizer for the new layer": (
        "PARAM005",
        """
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net[1] = nn.Linear(4, 3)
new = net[1]
opt = torch.optim.SGD(new.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
""",
    ),
    "another optimizer by a function": (
        "PARAM005",
        """
def made(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)

net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
opt = torch.optim.Adam(net.parameters())
net[1] = nn.Linear(4, 3)
opt = made(net)
""",
    ),
    "a whole layer as a group": (
        "PARAM005",
        """
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net[1] = nn.Linear(4, 3)
opt.add_param_group({"params": net[1].parameters()})
""",
    ),
    "a critic that is a part of the model that is cleared": (
        "GRAD001",
        """
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Linear(4, 1)

    def forward(self, x):
        return self.critic(x)

net = Whole()
opt = torch.optim.SGD(net.critic.parameters(), lr=0.1)
for x, y in loader:
    net.zero_grad()
    net(x).mean().backward()
    opt.step()
""",
    ),
    "a critic that is put into the model that is cleared": (
        "GRAD001",
        """
critic, net = nn.Linear(4, 1), nn.Sequential(nn.Linear(4, 4))
net.add_module("critic", critic)
opt = torch.optim.SGD(critic.parameters(), lr=0.1)
for x, y in loader:
    net.zero_grad()
    net(x).mean().backward()
    opt.step()
""",
    ),
    "a critic that is given to the model that is cleared": (
        "GRAD001",
        """
critic = nn.Linear(4, 1)
net = nn.Sequential(nn.Linear(4, 4), critic)
opt = torch.optim.SGD(critic.parameters(), lr=0.1)
for x, y in loader:
    net.zero_grad()
    net(x).mean().backward()
    opt.step()
""",
    ),
    "weights of an inner step": (
        "GRAD063",
        """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    given = torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))
    fast = {k: p - 0.1 * g for (k, p), g in zip(net.named_parameters(), given)}
    F.cross_entropy(torch.func.functional_call(net, fast, x), y).backward()
    opt.step()
""",
    ),
    "a weight made of gradients' norms": (
        "GRAD063",
        """
net, opt = nn.Linear(4, 3), None
for x, y in loader:
    first, second = F.cross_entropy(net(x), y), net(x).square().mean()
    one = torch.autograd.grad(first, net.weight, retain_graph=True)[0]
    two = torch.autograd.grad(second, net.weight, retain_graph=True)[0]
    share = torch.norm(one) / (torch.norm(two) + 1e-4)
    (first + share * second).backward()
""",
    ),
    "gradients that another network learns to give": (
        "GRAD063",
        """
net, score = nn.Linear(4, 1), nn.Linear(4, 4)
opt = torch.optim.SGD(score.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    x.requires_grad_(True)
    target = torch.autograd.grad(net(x).sum(), x)[0]
    ((score(x) - target) ** 2).mean().backward()
    opt.step()
""",
    ),
    "gradients that are kept as each micro-batch's": (
        "GRAD004",
        """
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
norms = []
for i, (x, y) in enumerate(loader):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    norms.append(net.weight.grad.norm())
    if (i + 1) % 2 == 0:
        opt.step()
""",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_beside_others_is_not_accused(name):
    code, text = RIGHT[name]
    assert code not in {each.code for each in read_text(PRELUDE + text).findings}
