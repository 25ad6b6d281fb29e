# SPDX-License-Identifier: Apache-2.0
"""Running checks that rest on what a loss is added up of: wrong forms are named in any wording, right ones are not."""

import re
import textwrap
import warnings

import pytest
import torch
import torch._dynamo

from truestep.doctor.finding import Severity
from truestep.doctor.watch_block import watch

STAGE = """
import copy
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
other = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
teacher = copy.deepcopy(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
xs, ys = torch.randn(8, 8, 4), torch.arange(64).reshape(8, 8) % 3
"""
LOOP = """
for x, y in zip(xs, ys):
    opt.zero_grad()
    out = net(x)
    ce = F.cross_entropy(out, y)
{body}
    loss.backward()
    opt.step()
"""


def found_by_running(code):
    """Return what is told beyond advice: codes with the lines that are marked `#! CODE`, and those found."""
    torch._dynamo.reset()
    with torch.random.fork_rng(), watch() as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(STAGE + code, "<case>", "exec"), {"__name__": "__main__"})
    assert watched.failures == []
    offset = STAGE.count("\n")
    marked = enumerate(code.splitlines(), 1)
    expected = [(told, line) for line, text in marked for told in re.findall(r"#! (\w+)", text)]
    told = [each for each in watched.findings if each.severity is not Severity.ADVICE]
    return expected, sorted((each.code, each.place.line - offset) for each in told)


def in_loop(body):
    return LOOP.format(body=textwrap.indent(textwrap.dedent(body).strip("\n"), "    "))


WITHOUT_GRADIENT = {
    "in the loss of each example": """
        rows = F.cross_entropy(out, y, reduction="none") + 0.1 * out.detach().square().sum(1)  #! GRAD063
        loss = rows.mean()""",
    "a slope in the loss of each example": """
        probe = x.detach().requires_grad_()
        slope, = torch.autograd.grad(net(probe).sum(), probe)  #! GRAD063
        rows = F.cross_entropy(out, y, reduction="none") + slope.square().sum(1)
        loss = rows.sum() / 8 + ce""",
    "detached": """
        spread = out.detach().pow(2).mean()  #! GRAD063
        loss = ce + 0.1 * spread""",
    "a number": """
        loss = ce + 0.1 * out.norm().item()  #! GRAD063""",
    "data, in place": """
        loss = ce.clone()
        loss += 1e-3 * sum(p.data.norm() for p in net.parameters())  #! GRAD063""",
    "a leaf made of a number": """
        spread = torch.tensor(out.std().item(), requires_grad=True)  #! GRAD063
        loss = sum([ce, spread])""",
    "under no_grad, in a stack": """
        with torch.no_grad():
            smooth = (net(x + 0.1) - 1).abs().mean()  #! GRAD063
        loss = torch.stack([ce, smooth]).mean()""",
    "a derivative without create_graph": """
        x.requires_grad_()
        slope, = torch.autograd.grad(net(x).sum(), x)  #! GRAD063
        loss = ce + slope.norm()""",
}
WITH_GRADIENT = {
    "a penalty over all weights, of which some are frozen": """
        for weight in list(net.parameters())[1::2]:
            weight.requires_grad_(False)
        loss = ce + 1e-3 * sum(weight.square().sum() for weight in net.parameters())""",
    "a slope with its graph in the loss of each example": """
        probe = x.detach().requires_grad_()
        slope, = torch.autograd.grad(net(probe).sum(), probe, create_graph=True)
        rows = F.cross_entropy(out, y, reduction="none") + slope.square().sum(1)
        loss = rows.mean()""",
    "data in the loss of each example": """
        rows = F.cross_entropy(out, y, reduction="none") - x.sum(1)
        loss = rows.mean()""",
    "all terms have it": "loss = ce + 1e-3 * sum(p.norm() for p in net.parameters())",
    "a value taken away": "loss = ce - ce.detach() + 0.1",
    "a number taken away": "loss = ce - ce.item() + 0.1",
    "constants and data": "loss = ce + torch.zeros(()) + 3.0 + x.mean()",
    "each by its own size": "loss = ce / ce.detach() + (out.norm() / out.norm().item())",
    "a teacher's entropy": """
        with torch.no_grad():
            told = teacher(x).softmax(1)
        loss = (told * told.log()).sum(1).mean() - (told * out.log_softmax(1)).sum(1).mean()""",
    "a weight that is a number": "loss = ce + ce.item() * out.pow(2).mean()",
    "a log beside": """
        total = ce.detach() + out.detach().norm()
        loss = ce + out.pow(2).mean()""",
}


@pytest.mark.parametrize("body", WITHOUT_GRADIENT.values(), ids=WITHOUT_GRADIENT)
def test_a_term_from_which_nothing_learns_is_named(body):
    expected, found = found_by_running(in_loop(body))
    assert found == expected


@pytest.mark.sliced(3)
@pytest.mark.parametrize("body", WITH_GRADIENT.values(), ids=WITH_GRADIENT)
def test_a_term_that_is_meant_so_is_not(body):
    assert found_by_running(in_loop(body))[1] == []


TWO_NETS = """
judge = torch.optim.Adam(other.parameters(), lr=1e-3)
for x, y in zip(xs, ys):
    fake = net(x)
    judge.zero_grad()
    judged = F.softplus(other(fake.detach())).mean() + F.softplus(-other(torch.randn(8, 3))).mean()
    judged.backward()
    judge.step()
    opt.zero_grad()
    fool = F.softplus(-other({fake})).mean()  {mark}
    loss = fool + F.cross_entropy(fake, y)
    loss.backward()
    opt.step()
"""


def test_a_term_of_another_optimizers_weights_is_a_constant_to_this_one():
    told = TWO_NETS.format(fake="fake", mark="").replace(
        "loss = fool", "loss = fool - other(y[:, None] + fake).detach().mean()"
    )
    trained_before = "judge = torch.optim.SGD(teacher.parameters(), lr=0.1)\n"
    trained_before += in_loop("loss = F.cross_entropy(teacher(x), y)").replace("opt", "judge")
    teaching = in_loop(WITH_GRADIENT["a teacher's entropy"])
    for code in (told, trained_before + teaching):
        assert "GRAD063" not in {code for code, _ in found_by_running(code)[1]}


def test_a_term_whose_gradients_are_all_cleared_is_named():
    expected, found = found_by_running(TWO_NETS.format(fake="fake.detach()", mark="#! GRAD063"))
    assert found == expected
    assert found_by_running(TWO_NETS.format(fake="fake", mark=""))[1] == []


TURNED = {
    "a minus before it": "loss = -ce  #! LOSS050",
    "a minus among the numbers": "loss = (-F.mse_loss(out, torch.ones(8, 3), reduction='none')).mean()  #! LOSS050",
    "written out": """
        gap = (out - torch.ones(8, 3)).pow(2).mean()
        loss = 0.5 * (1 - gap)  #! LOSS050""",
    "no minus before a log-probability": """
        picked = out.log_softmax(1).gather(1, y[:, None])
        loss = picked.mean()  #! LOSS050""",
    "a logarithm of probabilities": "loss = out.softmax(1)[torch.arange(8), y].log().sum()  #! LOSS050",
}
NOT_TURNED = {
    "two signs": "loss = -(-ce)",
    "a policy": """
        rewards = -torch.rand(8)
        loss = -(out.log_softmax(1).gather(1, y[:, None]).squeeze(1) * rewards).mean()""",
    "a policy step by step": """
        chosen = out.log_softmax(1)[0, y[0]]
        loss = -chosen * -float(torch.rand(()))""",
    "an error beside": "loss = ce - 0.1 * (out[:4] - out[4:]).pow(2).mean()",
}


@pytest.mark.parametrize("body", TURNED.values(), ids=TURNED)
def test_an_error_that_is_made_large_is_named(body):
    expected, found = found_by_running(in_loop(body))
    assert found == expected


@pytest.mark.parametrize("body", NOT_TURNED.values(), ids=NOT_TURNED)
def test_what_is_meant_to_grow_is_not(body):
    assert "LOSS050" not in {code for code, _ in found_by_running(in_loop(body))[1]}


def test_an_optimizer_that_maximises_turns_the_sign():
    ascent = "opt = torch.optim.SGD(net.parameters(), lr=0.1, maximize=True)"
    expected, found = found_by_running(ascent + "  #! LOSS050\n" + in_loop("loss = ce"))
    assert found == expected
    assert found_by_running(ascent + in_loop("loss = -ce"))[1] == []


def test_who_is_to_be_fooled_is_not_accused():
    fooling = TWO_NETS.format(fake="fake", mark="").replace("F.cross_entropy(fake, y)", "0")
    saturating = fooling.replace(
        "F.softplus(-other(fake)).mean()", "-F.mse_loss(other(fake), torch.zeros(8, 1))"
    )
    assert found_by_running(saturating)[1] == []
    attack = """
noise = nn.Parameter(torch.zeros(4))
attack = torch.optim.Adam([noise], lr=0.1)
for x, y in zip(xs, ys):
    attack.zero_grad()
    loss = -F.cross_entropy(net(x + noise), y)
    loss.backward()
    attack.step()
"""
    assert "LOSS050" not in {code for code, _ in found_by_running(attack)[1]}


CRITIC = """
        critic_opt.zero_grad()
        F.softplus(other(net(x).detach())).mean().backward()
        critic_opt.step()"""
TURNED_BESIDE_OTHERS = {
    "a critic in turn": """
        opt.zero_grad()
        loss = -F.cross_entropy(net(x), y)  #! LOSS050
        loss.backward()
        opt.step()"""
    + CRITIC,
    "a critic first": CRITIC
    + """
        out = net(x)
        errors = {"classes": F.cross_entropy(out, y), "size": 1e-3 * out.norm()}
        opt.zero_grad()
        (errors["size"] - errors["classes"]).backward()  #! LOSS050
        opt.step()""",
    "a teacher without a graph": """
        with torch.no_grad():
            told = teacher(x).softmax(1)
        picked = net(x).log_softmax(1).gather(1, told.argmax(1, keepdim=True)).mean()  #! LOSS050
        opt.zero_grad()
        picked.backward()
        opt.step()""",
    "a closure": """
        def closure():
            opt.zero_grad()
            loss = F.mse_loss(net(x), torch.ones(8, 3)).neg()  #! LOSS050
            loss.backward()
            return loss
        opt.step(closure)"""
    + CRITIC,
    "two optimizers of one model": """
        for each in pair:
            each.zero_grad()
        loss = 0.5 * (1 - F.mse_loss(net(x), torch.ones(8, 3)))  #! LOSS050
        loss.backward()
        for each in pair:
            each.step()""",
    "parts of a batch": """
        opt.zero_grad()
        for part, told in ((x[:4], y[:4]), (x[4:], y[4:])):
            (F.cross_entropy(net(part), told) / -2).backward()  #! LOSS050
        opt.step()"""
    + CRITIC,
}
MEANT_BESIDE_OTHERS = {
    "the critic is reached": """
        opt.zero_grad()
        (-F.binary_cross_entropy_with_logits(other(net(x)), torch.zeros(8, 1))).backward()
        opt.step()"""
    + CRITIC,
    "the critic is frozen": """
        other.requires_grad_(False)
        opt.zero_grad()
        (-F.binary_cross_entropy_with_logits(other(net(x)), torch.zeros(8, 1))).backward()
        opt.step()
        other.requires_grad_(True)"""
    + CRITIC,
    "who is fooled is in no optimizer": """
        judge = teacher.requires_grad_(False)
        opt.zero_grad()
        (-F.cross_entropy(judge(net(x).mean(1, keepdim=True).expand(8, 4)), y)).backward()
        opt.step()"""
    + CRITIC,
    "a generator and its critic in one module": """
        other.requires_grad_(False)
        opt.zero_grad()
        (-F.binary_cross_entropy_with_logits(both(x), torch.zeros(8, 1))).backward()
        opt.step()
        other.requires_grad_(True)"""
    + CRITIC,
    "a proxy takes the weights and climbs": """
        with torch.no_grad():
            for mine, its in zip(teacher.parameters(), net.parameters()):
                mine.copy_(its)
        proxy_opt.zero_grad()
        (-F.cross_entropy(teacher(x), y)).backward()
        proxy_opt.step()
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()""",
    "a student that is to disagree": """
        made = net(x)
        with torch.no_grad():
            told = other(made)
        opt.zero_grad()
        (-F.l1_loss(student(made), told)).backward()
        opt.step()
        student_opt.zero_grad()
        F.l1_loss(student(made.detach()), told).backward()
        student_opt.step()""",
    "two classifiers that are to differ": """
        opt.zero_grad()
        out = net(x)
        (F.cross_entropy(out, y) - F.l1_loss(out[:4], out[4:])).backward()
        opt.step()"""
    + CRITIC,
    "a noise that is to harm": """
        noise_opt.zero_grad()
        (-F.cross_entropy(net(x + noise), y)).backward()
        noise_opt.step()
        opt.zero_grad()
        F.cross_entropy(net(x + noise.detach()), y).backward()
        opt.step()""",
    "one goes down and one goes up": """
        noise_up.zero_grad()
        opt.zero_grad()
        F.cross_entropy(net(x + noise), y).backward()
        opt.step()
        noise_up.step()""",
}
BESIDE_OTHERS = """
noise = nn.Parameter(torch.zeros(4))
student = nn.Linear(3, 1)
both = nn.Sequential(net, other)
adam = torch.optim.Adam
critic_opt, proxy_opt, student_opt = (adam(each.parameters(), 1e-2) for each in (other, teacher, student))
noise_opt, noise_up = adam([noise], 1e-2), adam([noise], 1e-2, maximize=True)
pair = adam(net[0].parameters(), 1e-2), torch.optim.SGD(net[2].parameters(), 1e-2)
for x, y in zip(xs, ys):
"""


@pytest.mark.sliced(3)
@pytest.mark.parametrize("body", TURNED_BESIDE_OTHERS.values(), ids=TURNED_BESIDE_OTHERS)
def test_an_error_that_is_made_large_is_named_beside_other_optimizers(body):
    expected, found = found_by_running(
        BESIDE_OTHERS + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    )
    assert [each for each in found if each[0] == "LOSS050"] == expected


@pytest.mark.sliced(3)
@pytest.mark.parametrize("body", MEANT_BESIDE_OTHERS.values(), ids=MEANT_BESIDE_OTHERS)
def test_who_is_to_be_fooled_is_not_accused_beside_other_optimizers(body):
    found = found_by_running(BESIDE_OTHERS + textwrap.indent(textwrap.dedent(body).strip("\n"), "    "))[1]
    assert "LOSS050" not in {code for code, _ in found}


def test_an_output_that_a_learner_trains_is_used(tmp_path):
    code = f"""
import truestep as ts
run = ts.Run({str(tmp_path / "run")!r}, progress=False)
learner = run.learner(net, lambda p: torch.optim.Adam(p, lr=1e-2))
for batch in zip(xs, ys):
    learner.update(lambda b: F.cross_entropy(learner(b[0]), b[1], reduction="none"), batch)
run.close()
"""
    assert found_by_running(code)[1] == []


LOST = """
for step, (x, y) in enumerate([*zip(xs, ys)] * 2, 1):
    {first}
    F.cross_entropy(net(x), y).div(4).backward()
    if step % 4 == 0:
        opt.step()
        {last}
"""


def test_backwards_whose_gradients_are_cleared_before_the_step_are_named():
    expected, found = found_by_running(LOST.format(first="net.zero_grad()  #! GRAD004", last="pass"))
    assert set(expected) <= set(found)
    for first, last in (("pass", "net.zero_grad()"), ("opt.zero_grad() if step % 4 == 1 else None", "pass")):
        found = found_by_running(LOST.format(first=first, last=last))[1]
        assert "GRAD004" not in {code for code, _ in found}
