# SPDX-License-Identifier: Apache-2.0
"""What makes a forward an evaluation: not the missing gradients alone, for many a training step applies a model without them."""

import warnings

import pytest
import torch

from truestep.doctor.finding import Severity
from truestep.doctor.watch_block import watch

HEAD = """
import copy
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def net_of(out=3):
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, out))


def step(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


def noisy(a):
    return a + 0.1 * torch.randn_like(a)


x = torch.randn(64, 6)
y = x[:, :3].argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
held = torch.randn(64, 6)
held_y = held[:, :3].argmax(1)
test_loader = DataLoader(TensorDataset(held, held_y), batch_size=16)
net = net_of()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
"""
GAN = """
G = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))
D = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)
fixed = torch.randn(16, 4)
for epoch in range(4):
    for real, _ in loader:
        with torch.no_grad():
            fake = G(torch.randn(len(real), 4))
        step(opt_d, F.softplus(D(fake)).mean() + F.softplus(-D(real)).mean())
        fake = G(torch.randn(len(real), 4))
        step(opt_g, F.softplus(-D(fake)).mean())
        with torch.no_grad():
            score = D(fake).mean().item()
"""

WITHIN_STEPS = {
    "accuracy on the batch, after the step": """
for epoch in range(4):
    hits = 0
    for a, b in loader:
        step(opt, F.cross_entropy(net(a), b))
        with torch.no_grad():
            hits += (net(a).argmax(1) == b).sum().item()
net.eval()
""",
    "accuracy by an iteration that no loader gives": """
for _ in range(12):
    i = torch.randint(64, (16,))
    step(opt, F.cross_entropy(net(x[i]), y[i]))
    with torch.no_grad():
        print((net(x[i]).argmax(1) == y[i]).float().mean().item())
""",
    "a bank of features": """
net = net_of(8)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
bank = F.normalize(torch.randn(64, 8), dim=1)
for epoch in range(4):
    for a, i in DataLoader(TensorDataset(x, torch.arange(64)), batch_size=16, shuffle=True):
        step(opt, F.cross_entropy(F.normalize(net(a), dim=1) @ bank.t() / 0.1, i))
        with torch.no_grad():
            bank[i] = F.normalize(0.5 * bank[i] + 0.5 * net(a), dim=1)
net.eval()
""",
    "labels of its own": """
unlabelled = DataLoader(TensorDataset(torch.randn(64, 6)), batch_size=16, shuffle=True)
for epoch in range(4):
    for (a, b), (u,) in zip(loader, unlabelled):
        with torch.no_grad():
            sure, label = net(u).softmax(1).max(1)
        out = net(torch.cat([a, noisy(u)]))
        mine = F.cross_entropy(out[16:], label, reduction="none") * (sure > 0.6)
        step(opt, F.cross_entropy(out[:16], b) + mine.mean())
net.eval()
""",
    "keys by an encoder that follows": """
q, k = net_of(8), net_of(8).requires_grad_(False)
k.load_state_dict(q.state_dict())
opt = torch.optim.SGD(q.parameters(), lr=0.05)
queue = F.normalize(torch.randn(32, 8), dim=1)
for epoch in range(4):
    for a, _ in loader:
        zq = F.normalize(q(noisy(a)), dim=1)
        with torch.no_grad():
            for one, other in zip(q.parameters(), k.parameters()):
                other.mul_(0.99).add_(one, alpha=0.01)
            zk = F.normalize(k(noisy(a)), dim=1)
        logits = torch.cat([(zq * zk).sum(1, keepdim=True), zq @ queue.t()], 1) / 0.2
        step(opt, F.cross_entropy(logits, torch.zeros(16, dtype=torch.long)))
        queue = torch.cat([queue[16:], zk])
q.eval()
""",
    "scores after both steps of a GAN": GAN + "D.eval()\n",
    "ratios to the policy before, and how far it went": """
policy = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 3))
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
for update in range(4):
    state, advantage = torch.randn(32, 6), torch.randn(32)
    with torch.no_grad():
        before = torch.distributions.Categorical(logits=policy(state))
        action = before.sample()
    for _ in range(4):
        now = torch.distributions.Categorical(logits=policy(state))
        ratio = (now.log_prob(action) - before.log_prob(action)).exp()
        step(opt, -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean())
        with torch.no_grad():
            now = torch.distributions.Categorical(logits=policy(state)).log_prob(action)
            far = (before.log_prob(action) - now).mean().item()
policy.eval()
""",
    "statistics of the norms, anew": """
for epoch in range(4):
    for a, b in loader:
        step(opt, F.cross_entropy(net(a), b))
with torch.no_grad():
    for a, _ in loader:
        net(a)
net.eval()
""",
    "a loss compared before and after the step": """
for epoch in range(4):
    for a, b in loader:
        loss = F.cross_entropy(net(a), b)
        step(opt, loss)
        with torch.no_grad():
            after = F.cross_entropy(net(a), b)
        if after > 2 * loss:
            opt.param_groups[0]["lr"] *= 0.5
net.eval()
""",
    "hard examples": """
for epoch in range(4):
    with torch.no_grad():
        losses = F.cross_entropy(net(x), y, reduction="none")
    for i in losses.topk(48).indices.split(16):
        step(opt, F.cross_entropy(net(x[i]), y[i]))
net.eval()
""",
    "the better action by the net, its worth by the target": """
target = copy.deepcopy(net)
for turn in range(12):
    with torch.no_grad():
        action = net(torch.randn(2, 6)).argmax(1)[0].item()
    s, s2, act = torch.randn(16, 6), torch.randn(16, 6), torch.randint(3, (16, 1))
    with torch.no_grad():
        goal = 1 + 0.9 * target(s2).gather(1, net(s2).argmax(1, keepdim=True))
    step(opt, F.smooth_l1_loss(net(s).gather(1, act), goal))
net.eval()
""",
    "clusters as labels": """
net, head = net_of(8), nn.Linear(8, 4)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
for epoch in range(4):
    with torch.no_grad():
        features = torch.cat([net(a) for a in x.split(16)])
    label = torch.cdist(features, features[torch.randperm(64)[:4]]).argmin(1)
    for i in torch.randperm(64).split(16):
        step(opt, F.cross_entropy(head(net(x[i])), label[i]))
net.eval()
""",
}
# what is expected of each
EVALUATIONS = {
    "after each epoch": (
        """
for epoch in range(3):
    for a, b in loader:
        step(opt, F.cross_entropy(net(a), b))
    with torch.no_grad():
        hits = sum((net(a).argmax(1) == b).sum().item() for a, b in test_loader)
""",
        "bug",
    ),
    "after each step, on rows that are held out": (
        """
for _ in range(12):
    step(opt, F.cross_entropy(net(x), y))
    with torch.no_grad():
        print((net(held).argmax(1) == held_y).float().mean().item())
""",
        "bug",
    ),
    "by the line that tells the progress, too": (
        """
def accuracy(a, b):
    with torch.no_grad():
        return (net(a).argmax(1) == b).float().mean().item()

for epoch in range(4):
    for a, b in loader:
        step(opt, F.cross_entropy(net(a), b))
        accuracy(a, b)
    for a, b in test_loader:
        accuracy(a, b)
""",
        "bug",
    ),
    "one function for both": (
        """
def passed(batches, training):
    for a, b in batches:
        with torch.set_grad_enabled(training):
            loss = F.cross_entropy(net(a), b)
        if training:
            step(opt, loss)

for epoch in range(3):
    passed(loader, True)
    passed(test_loader, False)
""",
        "bug",
    ),
    "on the training data, at the end": (
        """
for _ in range(8):
    step(opt, F.cross_entropy(net(x), y))
with torch.no_grad():
    print((net(x).argmax(1) == y).float().mean())
""",
        "bug",
    ),
    "samples of a generator": (
        GAN + "    with torch.no_grad():\n        images = G(fixed).clone()\n",
        "question",
    ),
}


def found_in(code):
    names = {"__name__": "__main__"}
    with torch.random.fork_rng(), watch() as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        exec(compile(HEAD + code, "<script>", "exec"), names)
    assert watched.failures == []
    mild = (Severity.ADVICE,)
    return [(each.code, each.severity.value) for each in watched.findings if each.severity not in mild]


@pytest.mark.sliced(4)
@pytest.mark.parametrize("habit", WITHIN_STEPS)
def test_a_forward_without_gradients_within_a_step_is_no_evaluation(habit):
    assert found_in(WITHIN_STEPS[habit]) == []


@pytest.mark.sliced(3)
@pytest.mark.parametrize("habit", EVALUATIONS)
def test_an_evaluation_is_one_wherever_it_stands(habit):
    code, severity = EVALUATIONS[habit]
    assert found_in(code) == [("EVAL002", severity)]
