# SPDX-License-Identifier: Apache-2.0
"""Shares taken for logits, norms of parts of a gradient, and averages that forget are told; right wordings of each are not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
SHARES = """
from torch.distributions import Categorical
def gumbel(like):
    return -torch.log(-torch.log(torch.rand_like(like).clamp(1e-6, 1 - 1e-6)))
twice = nn.Sequential(net, nn.Softmax(1))
for x, y in loader:
    logits = net(x)
    p = logits.softmax(1)
    VALUE
    opt.zero_grad()
    (F.cross_entropy(logits, y) + value.mean()).backward()
    opt.step()
"""
RIGHT_SHARES = {
    "logits": "value = (2 * logits).softmax(1)[:, 0]",
    "drawn of logits": "value = F.gumbel_softmax(logits, tau=0.5)[:, 0]",
    "noise on logits": "value = (logits / 0.5 + gumbel(logits)).softmax(1)[:, 0]",
    "noise on logarithms": "value = (p.log() + gumbel(p)).softmax(1)[:, 0]",
    "a distribution of shares": "value = Categorical(probs=p).entropy()",
    "a distribution of logits": "value = Categorical(logits=logits).entropy()",
    "attention": "value = (logits @ logits.t()).softmax(-1).matmul(logits)[:, 0]",
    "shares of examples": "value = p.softmax(0)[:, 0]",
    "softened labels": "value = -(F.one_hot(y, 3) * 3.0).softmax(1).mul(logits.log_softmax(1)).sum(1)",
    "sharpened shares": "value = (p ** 2 / (p ** 2).sum(1, keepdim=True)).sub(0.1)[:, 0]",
    "a sum of exponents": "value = logits.logsumexp(1)",
    "gates made once more of the best": "value = p.topk(2, 1)[0].softmax(1)[:, 0]",
    "plain noise on shares": "value = (p + 0.1 * torch.rand_like(p))[:, 0]",
    "logits that are never below 0": "value = logits.relu().softmax(1)[:, 0]",
}
FAULTY_SHARES = {
    "softmax twice": "value = p.softmax(1)[:, 0]",
    "of a model that ends in it": "value = torch.softmax(twice(x), dim=-1)[:, 0]",
    "logarithms of shares of shares": "value = F.log_softmax(p, 1)[:, 0]",
    "drawn of shares": "value = F.gumbel_softmax(p, tau=0.5)[:, 0]",
    "a distribution of them": "value = Categorical(logits=p).log_prob(y)",
    "noise on shares": "value = (p / 0.5 + gumbel(p)).softmax(1)[:, 0]",
    "noise of exponents": "value = (p - torch.empty_like(p).exponential_().log())[:, 0]",
    "colder": "value = (p / 0.1).softmax(1)[:, 0]",
    "by a layer": "value = nn.Softmax(dim=1)(F.softmax(logits, dim=1))[:, 0]",
    "by hand first": "e = logits.exp(); value = (e / e.sum(1, keepdim=True)).softmax(1)[:, 0]",
    "attention twice": "value = (logits @ logits.t()).softmax(-1).softmax(-1).matmul(logits)[:, 0]",
    "a sum of their exponents": "value = p.logsumexp(1)",
}
NORMS = """
for x, y in loader:
    mixed = x.reshape(-1, 2, 2).requires_grad_()
    out = net(mixed.flatten(1))
    score, rows = out.sum(1), len(x)
    g, = torch.autograd.grad(OF, mixed, create_graph=True)
    PENALTY
    opt.zero_grad()
    (F.cross_entropy(out, y) + penalty.mean()).backward()
    opt.step()
"""
RIGHT_NORMS = {
    "flat": "penalty = (g.flatten(1).norm(2, dim=1) - 1) ** 2",
    "by a view": "penalty = (g.view(rows, -1).norm(2, 1) - 1) ** 2",
    "over two axes": "penalty = (g.norm(2, dim=(1, 2)) - 1) ** 2",
    "by squares": "penalty = (g.square().sum((1, 2)).add(1e-8).sqrt() - 1) ** 2",
    "sums one by one": "penalty = (g.pow(2).sum(2).sum(1).sqrt() - 1) ** 2",
    "around zero": "penalty = g.norm(2, dim=1) ** 2",
    "squares around zero": "penalty = g.flatten(1).pow(2).sum(1)",
    "beside ones": "n = g.flatten(1).norm(dim=1); penalty = F.mse_loss(n, torch.ones_like(n))",
    "of all": "penalty = (g.norm() - 1) ** 2",
    "above a bound": "penalty = (g.flatten(1).norm(dim=1) - 1).relu() ** 2",
}
FAULTY_NORMS = {
    "over channels": "penalty = (g.norm(2, dim=1) - 1) ** 2",
    "over the last axis": "penalty = (g.norm(dim=-1) - 1) ** 2",
    "from one": "penalty = (1 - g.norm(2, 1)) ** 2",
    "by linalg": "penalty = (torch.linalg.vector_norm(g, dim=1) - 1) ** 2",
    "by squares": "penalty = (g.square().sum(1).sqrt() - 1) ** 2",
    "with a little more": "penalty = (torch.sqrt(torch.sum(g ** 2, dim=1) + 1e-12) - 1) ** 2",
    "beside ones": "n = g.norm(dim=1); penalty = F.mse_loss(n, torch.ones_like(n))",
    "above a bound": "penalty = F.relu(g.norm(2, dim=1) - 1) ** 2",
    "flat too late": "penalty = (g.norm(2, dim=1).flatten(1) - 1) ** 2",
    "from another number": "penalty = (g.norm(2, dim=1) - 750.0) ** 2",
}
POINTS = """
field = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 1))
opt = torch.optim.SGD([*net.parameters(), *field.parameters()], lr=0.01)
for x, y in loader:
    points = x.reshape(-1, 2, 2).requires_grad_()
    found = field(points)
    g, = torch.autograd.grad(OF, points, torch.ones_like(OF), create_graph=True)
    opt.zero_grad()
    (F.cross_entropy(net(x), y) + ((g.norm(dim=-1) - 1) ** 2).mean()).backward()
    opt.step()
"""
AVERAGE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.norm = nn.Linear(4, 6), nn.Linear(6, 3), NORM
        for name in ("mean", "size"):
            self.register_buffer(name, torch.ones(6))
    def forward(self, x):
        h = self.norm(self.first(x))
        with torch.no_grad():
            MOVES
        return self.last(h.relu() - self.mean)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
"""
RIGHT_AVERAGES = {
    "torch's own share": ("nn.BatchNorm1d(6)", "pass"),
    "a small share": ("nn.BatchNorm1d(6, momentum=0.01)", "pass"),
    "of all batches": ("nn.BatchNorm1d(6, momentum=None)", "pass"),
    "half": ("nn.BatchNorm1d(6, momentum=0.5)", "pass"),
    "the last batch on purpose": ("nn.BatchNorm1d(6, momentum=1.0)", "pass"),
    "no statistics": ("nn.LayerNorm(6)", "pass"),
    "of its own": ("nn.Identity()", "self.mean.mul_(0.9).add_(0.1 * h.mean(0))"),
    "drawn nearer": ("nn.Identity()", "self.mean.lerp_(h.mean(0), 0.05)"),
    "assigned": ("nn.Identity()", "self.mean = 0.99 * self.mean + 0.01 * h.mean(0)"),
    "the last values": ("nn.Identity()", "self.mean.copy_(h.mean(0))"),
    "added up": ("nn.Identity()", "self.mean.add_(h.mean(0))"),
    "sums with their sizes": ("nn.Identity()", "self.size.mul_(0.9).add_(1); self.mean.copy_(h.sum(0) / self.size)"),
    "largest values": ("nn.Identity()", "self.mean.copy_(torch.maximum(self.mean, h.amax(0)))"),
}  # fmt: skip
FAULTY_AVERAGES = {
    "another library's share": ("nn.BatchNorm1d(6, momentum=0.99)", "pass"),
    "a smaller one": ("nn.BatchNorm1d(6, momentum=0.9)", "pass"),
    "by its place": ("nn.BatchNorm1d(6, 1e-3, 0.99)", "pass"),
    "of pictures": (
        "nn.Sequential(nn.Unflatten(1, (6, 1, 1)), nn.BatchNorm2d(6, momentum=0.95), nn.Flatten(1))",
        "pass",
    ),
    "of its own": ("nn.Identity()", "self.mean.mul_(0.1).add_(0.9 * h.mean(0))"),
    "drawn nearer": ("nn.Identity()", "self.mean.lerp_(h.mean(0), 0.95)"),
    "assigned": ("nn.Identity()", "self.mean = 0.01 * self.mean + 0.99 * h.mean(0)"),
    "a sum of two": ("nn.Identity()", "self.mean.copy_(self.mean * (1 - 0.99) + h.mean(0) * 0.99)"),
    "by data": ("nn.Identity()", "self.mean.data = torch.lerp(h.mean(0), self.mean, 0.05)"),
    "a function": ("nn.Identity()", "F.batch_norm(h, self.mean, self.size, training=True, momentum=0.99)"),
}


def loop_of_shares(value):
    return watched(SHARES.replace("VALUE", value), ("REL025",))


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", RIGHT_SHARES)
def test_what_takes_logits_and_gets_them_is_silent(name):
    watch = loop_of_shares(RIGHT_SHARES[name])
    assert [each.message for each in watch.findings] == []
    assert watch.experiments.outcome("REL025")[0] in ("held", "not applicable")


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", FAULTY_SHARES)
def test_shares_that_are_taken_for_logits_are_told(name):
    assert loop_of_shares(FAULTY_SHARES[name]).findings


@pytest.mark.sliced(4)
@pytest.mark.parametrize("of", ["score.sum()", "score, grad_outputs=torch.ones(rows), inputs=mixed"])
@pytest.mark.parametrize("name", RIGHT_NORMS)
def test_one_norm_for_each_output_is_silent(name, of):
    code = NORMS.replace("OF, mixed", of if "inputs" in of else f"{of}, mixed")
    watch = watched(code.replace("PENALTY", RIGHT_NORMS[name]), ("REL026",))
    assert [each.message for each in watch.findings] == []
    assert watch.experiments.outcome("REL026")[0] == "held"


@pytest.mark.sliced(4)
@pytest.mark.parametrize("of", ["score.sum()", "score, grad_outputs=torch.ones(rows), inputs=mixed"])
@pytest.mark.parametrize("name", FAULTY_NORMS)
def test_norms_of_parts_of_an_example_are_told(name, of):
    code = NORMS.replace("OF, mixed", of if "inputs" in of else f"{of}, mixed")
    assert len(watched(code.replace("PENALTY", FAULTY_NORMS[name]), ("REL026",)).findings) == 1


@pytest.mark.parametrize("of", ["found", "found.sum()"])
def test_a_norm_for_each_point_of_a_field_is_silent(of):
    watch = watched(POINTS.replace("OF", of), ("REL026",))
    assert [each.message for each in watch.findings] == []
    assert watch.experiments.outcome("REL026")[0] == "held"


def loop_of_average(norm, moves):
    return watched(AVERAGE.replace("NORM", norm).replace("MOVES", moves), ("REL027",))


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", RIGHT_AVERAGES)
def test_an_average_that_keeps_what_it_was_is_silent(name):
    watch = loop_of_average(*RIGHT_AVERAGES[name])
    assert [each.message for each in watch.findings] == []
    assert watch.experiments.outcome("REL027")[0] == "held"


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", FAULTY_AVERAGES)
def test_an_average_of_the_last_batch_is_told(name):
    assert len(loop_of_average(*FAULTY_AVERAGES[name]).findings) == 1
