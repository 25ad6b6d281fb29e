# SPDX-License-Identifier: Apache-2.0
"""Slopes of a step's loss: a graph that is cut off by chance is found, and one that is cut off in writing is no finding."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

from truestep.doctor.experiments.slopes import CUT_IN_WRITING

pytestmark = needs_forks
CUT = {
    "by normal at <example>:7": """
mean, width, decoder = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(2, 4)
opt = torch.optim.Adam([*mean.parameters(), *width.parameters(), *decoder.parameters()], lr=0.05)
for x, y in loader:
    normal = torch.distributions.Normal(mean(x), F.softplus(width(x)))
    opt.zero_grad()
    error = -torch.distributions.Normal(decoder(normal.sample()), 0.7).log_prob(3 * x).sum(1)
    (error + 0.1 * torch.distributions.kl_divergence(normal, torch.distributions.Normal(0, 1)).sum(1)).mean().backward()
    opt.step()
""",
    "by grad without create_graph at <example>:7": """
critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.Adam(critic.parameters())
for x, y in loader:
    x.requires_grad_(True)
    scores = critic(x)
    slopes, = torch.autograd.grad(scores.sum(), x, retain_graph=True)
    opt.zero_grad()
    (scores.mean() + 10 * (slopes.norm(dim=1) - 1).square().mean()).backward()
    opt.step()
""",
}
RIGHT = {
    "a target of the network itself": """
for x, y in loader:
    with torch.no_grad():
        target = 3 * net(x.flip(1)).amax(1)
    opt.zero_grad()
    (net(x).gather(1, y[:, None]).squeeze(1) - target).square().mean().backward()
    opt.step()
""",
    "a policy that is scored by its samples": """
policy = nn.Linear(4, 1)
opt = torch.optim.Adam(policy.parameters(), lr=0.05)
for x, y in loader:
    chosen = torch.distributions.Normal(policy(x).squeeze(1), 0.5)
    action = chosen.sample()
    opt.zero_grad()
    (chosen.log_prob(torch.stack([*action]).clamp(-9, 9)) * (action - 3 * y).square()).mean().backward()
    opt.step()
""",
    "a straight-through estimator, and a number that is logged": """
total = 0.0
for x, y in loader:
    opt.zero_grad()
    hidden = net[0](x)
    loss = F.cross_entropy(net[2](hidden + (hidden.round() - hidden).detach()), y)
    total += loss.item()
    loss.backward()
    opt.step()
""",
}


@pytest.mark.parametrize("told", CUT)
def test_what_is_cut_off_is_found(told):
    (found,) = watched(CUT[told], ("REL011",)).findings
    assert found.message.endswith(told)


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_cut_off_in_writing_is_no_finding(name):
    watch = watched(RIGHT[name], ("REL011",))
    assert watch.findings == []
    why = watch.experiments.why_not_tried("REL011")
    assert why.startswith((CUT_IN_WRITING, "samples are scored by log_prob()"))


HALF = """
decorated = torch.autocast("cpu", dtype=torch.bfloat16)(lambda x, y: F.cross_entropy(net(x), y))
for x, y in loader:
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), y) + decorated(x, y)
        loss = loss + 0.3 * sum(CUT.square().sum() for each in net.parameters())
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(("decay", "outcome"), [("each", "held"), ("torch.tensor(each.tolist())", "broken")])
def test_slopes_are_measured_without_the_half_precision_of_a_script(decay, outcome):
    watch = watched(HALF.replace("CUT", decay), ("REL011",))
    assert watch.experiments.outcome("REL011") == (outcome, None)


CONSTANT = {
    "a copy that is not frozen": """
import copy

for x, y in loader:
    old = copy.deepcopy(net)
    loss = F.cross_entropy(net(x), y) + 3 * (net(x) - old(x.flip(1))).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a state loaded into a teacher in each step": """
target = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
for x, y in loader:
    out = net(x)
    target.load_state_dict(net.state_dict())
    with torch.no_grad():
        goal = target(x.flip(1))
    loss = F.cross_entropy(out, y) + 3 * (out - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "an average that is updated before the loss": """
import copy

target = copy.deepcopy(net)
for x, y in loader:
    out = net(x)
    with torch.no_grad():
        for a, b in zip(target.parameters(), net.parameters()):
            a.lerp_(b, 0.5)
        goal = target(x.flip(1))
    loss = F.cross_entropy(out, y) + 9 * (out - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "the policy before the step": """
import copy

for x, y in loader:
    old = copy.deepcopy(net)
    ratio = (net(x).log_softmax(1).gather(1, y[:, None]) - old(x).log_softmax(1).gather(1, y[:, None]).detach()).exp()
    loss = -(ratio * x[:, :1]).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "terms that are balanced": """
for x, y in loader:
    out = net(x)
    a = F.cross_entropy(out, y)
    b = out.square().mean()
    loss = a + b * (a.item() / (b.item() + 1e-8))
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a loss scaled to one": """
for x, y in loader:
    a = F.cross_entropy(net(x), y)
    loss = a / a.item()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "the same by float()": """
for x, y in loader:
    a = F.cross_entropy(net(x), y)
    loss = a / float(a)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "outputs divided by the largest": """
for x, y in loader:
    out = net(x)
    top = out.abs().max().item()
    loss = F.cross_entropy(out / top * 5, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a factor that math computes": """
import math

for x, y in loader:
    out = net(x)
    a = F.cross_entropy(out, y)
    loss = a * math.exp(-a.item())
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a baseline that is a number": """
value = nn.Linear(4, 1)
opt = torch.optim.SGD([*net.parameters(), *value.parameters()], lr=0.05)
for x, y in loader:
    v = value(x).squeeze(1)
    base = v.mean().item()
    logp = net(x).log_softmax(1).gather(1, y[:, None]).squeeze(1)
    loss = -(logp * (x[:, 0] - base)).mean() + (v - x[:, 0]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a tensor of weights": """
for x, y in loader:
    out = net(x)
    terms = [F.cross_entropy(out, y), out.square().mean(), out.abs().mean()]
    w = torch.tensor([1 / (t.item() + 0.1) for t in terms])
    loss = (torch.stack(terms) * w).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "weights by way of a list": """
for x, y in loader:
    out = net(x)
    each = F.cross_entropy(out, y, reduction="none")
    w = torch.tensor(each.tolist())
    loss = (each * w).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a target that is a number": """
value = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(value.parameters(), lr=0.05)
for x, y in loader:
    v = value(x).squeeze(1)
    goal = 0.9 * value(x.flip(0)).mean().item() + 1.0
    loss = (v - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}
ADDED = {
    "a number": """
for x, y in loader:
    out = net(x)
    reg = sum(p.square().sum() for p in net.parameters()).item()
    loss = F.cross_entropy(out, y) + 0.3 * reg
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a tensor of a number": """
for x, y in loader:
    out = net(x)
    reg = torch.tensor(sum(p.square().sum() for p in net.parameters()).item())
    loss = F.cross_entropy(out, y) + 0.3 * reg
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a number beside a factor": """
for x, y in loader:
    out = net(x)
    a = F.cross_entropy(out, y)
    reg = sum(p.square().sum() for p in net.parameters()).item()
    loss = a * (1 + 0.1 * a.item()) + 0.3 * reg
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}


# held as others are, by the same lines: a copy, a float, a tensor made of numbers
AS_OTHERS = {
    "the policy before the step", "terms that are balanced", "a loss scaled to one", "the same by float()",
    "weights by way of a list",
}  # fmt: skip


@pytest.mark.sliced(6)
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each in AS_OTHERS)) for each in CONSTANT]
)
def test_factors_of_plain_numbers_and_copies_are_constants(name):
    watch = watched(CONSTANT[name], ("REL011",))
    assert watch.findings == []
    assert watch.experiments.outcome("REL011") in (("held", None), ("not tried", CUT_IN_WRITING))


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", ADDED)
def test_a_term_that_is_a_plain_number_is_found(name):
    (found,) = watched(ADDED[name], ("REL011",)).findings
    assert "by item at <example>:" in found.message


PENALTY = """
critic = nn.Sequential(nn.Linear(4, 32), ACT, nn.Linear(32, 32), ACT, nn.Linear(32, 1))
opt = torch.optim.Adam(critic.parameters(), lr=0.01)
for x, y in loader:
    made = torch.randn(len(x), 4)
    between = (x + torch.rand(len(x), 1) * (made - x)).requires_grad_()
    scores = critic(between)
    slopes, = torch.autograd.grad(scores, between, torch.ones_like(scores), create_graph=True)
    opt.zero_grad()
    (critic(made).mean() - critic(x).mean() + 10 * (slopes.norm(dim=1) - 1).square().mean()).backward()
    opt.step()
"""


@pytest.mark.sliced(2)
@pytest.mark.parametrize(
    "act", ["nn.LeakyReLU(0.2)", "nn.ReLU()", "nn.PReLU()", "nn.Hardtanh()", "nn.ReLU6()"]
)
def test_a_gradient_penalty_of_a_critic_with_kinks_is_not_tried(act):
    watch = watched(PENALTY.replace("ACT", act), ("REL011",))
    assert not watch.findings
    outcome, why = watch.experiments.outcome("REL011")
    assert outcome == "not tried"
    assert "which jumps where that bends" in why


@pytest.mark.parametrize("act", ["nn.Tanh()", "nn.ELU()", "nn.SiLU()"])
def test_a_gradient_penalty_of_a_smooth_critic_keeps_its_slope(act):
    watch = watched(PENALTY.replace("ACT", act), ("REL011",))
    assert watch.experiments.outcome("REL011")[0] == "held"
