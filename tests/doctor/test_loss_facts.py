# SPDX-License-Identifier: Apache-2.0
"""Running checks that rest on what a loss is added up of: wrong forms are named in any wording, right ones are not."""

import re
import textwrap
import warnings

import pytest
import torch
import torch._dynamo

from truestep.doctor.block import watch
from truestep.doctor.finding import Severity

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
    "weights grow": "loss = ce - 1e-3 * sum(p.square().sum() for p in net.parameters())  #! LOSS050",
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
    "decay": "loss = ce + 1e-3 * sum(p.square().sum() for p in net.parameters())",
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


DIVERGENCE = """
for x, y in zip(xs, ys):
    opt.zero_grad()
    out = net(x)
    mean, logvar = out[:, :1], out[:, 1:2]
{body}
    loss.backward()
    opt.step()
"""
LARGER = {
    "summed, the minus missing": "loss = ((out - 1) ** 2).sum() + 0.5 * torch.sum(1 + logvar - mean ** 2 - torch.exp(logvar))",
    "taken away": "loss = F.mse_loss(out, out.detach() + 1) - 0.1 * (-0.5 * torch.mean(1 + logvar - mean * mean - logvar.exp()))",
    "by torch": """
        latent = torch.distributions.Normal(mean, (0.5 * logvar).exp())
        kl = torch.distributions.kl_divergence(latent, torch.distributions.Normal(0, 1)).sum(1).mean()
        loss = (out - 1).pow(2).mean() - kl""",
}


@pytest.mark.parametrize("body", LARGER.values(), ids=LARGER)
def test_a_divergence_with_the_wrong_sign_is_known_by_its_value(body):
    code = DIVERGENCE.format(body=textwrap.indent(textwrap.dedent(body).strip("\n"), "    "))
    assert [each for each, _ in found_by_running(code)[1]] == ["LOSS051"]
    for wrong, right in ((" + 0.5 *", " - 0.5 *"), (" - 0.1 *", " + 0.1 *"), (" - kl", " + kl")):
        code = code.replace(wrong, right)
    assert found_by_running(code)[1] == []


IN_TURN = """
judge = torch.optim.Adam(other.parameters(), lr=1e-3)
for x, y in zip(xs, ys):
    {clear}
    fool = F.softplus(-other(net(x))).mean()
    fool.backward()
    opt.step()
    {between}
    judged = F.softplus(other(net(x).detach())).mean() + F.softplus(-other(torch.randn(8, 3))).mean()
    judged.backward()  {mark}
    judge.step()
"""
CLEARED = (
    "judge.zero_grad()",
    "other.zero_grad()",
    "[setattr(p, 'grad', None) for p in other.parameters()]",
    "[p.grad.zero_() for p in other.parameters()]",
)


def test_steps_on_gradients_that_another_loss_left_are_named_however_they_would_be_cleared():
    code = IN_TURN.format(clear="opt.zero_grad(); judge.zero_grad()", between="", mark="#! GRAD050")
    expected, found = found_by_running(code)
    assert found == expected
    for between in CLEARED:
        right = IN_TURN.format(clear="opt.zero_grad()", between=between, mark="")
        assert "GRAD050" not in {code for code, _ in found_by_running(right)[1]}


def test_an_optimizer_that_steps_less_often_than_another_is_not_accused():
    code = """
head = torch.optim.Adam(net[2].parameters(), lr=1e-3)
body = torch.optim.Adam(net[0].parameters(), lr=1e-3)
for step, (x, y) in enumerate([*zip(xs, ys)] * 2, 1):
    F.cross_entropy(net(x), y).backward()
    head.step(); head.zero_grad()
    if step % 2 == 0:
        body.step(); body.zero_grad()
"""
    assert "GRAD050" not in {code for code, _ in found_by_running(code)[1]}


TARGET = """
for step, (x, y) in enumerate(zip(xs, ys)):
    opt.zero_grad()
    with torch.no_grad():
        told = teacher(x)  {mark}
    F.mse_loss(net(x), told + 1).backward()
    opt.step()
    {update}
"""
AT_ONCE = (
    "teacher.load_state_dict(net.state_dict())",
    "[old.data.mul_(0.01).add_(new.data, alpha=0.99) for old, new in zip(teacher.parameters(), net.parameters())]",
)
SLOWLY = (
    "pass",
    "[old.data.mul_(0.9).add_(new.data, alpha=0.1) for old, new in zip(teacher.parameters(), net.parameters())]",
    "teacher.load_state_dict(net.state_dict()) if step % 2 else None",
)


@pytest.mark.parametrize("update", AT_ONCE)
def test_a_copy_that_follows_at_once_is_named(update):
    expected, found = found_by_running(TARGET.format(update=update, mark="#! PARAM045"))
    assert found == expected


@pytest.mark.parametrize("update", SLOWLY)
def test_a_target_that_lags_is_not(update):
    assert found_by_running(TARGET.format(update=update, mark=""))[1] == []


def test_a_target_that_is_the_net_itself_is_named_at_its_update():
    code = TARGET.format(mark="", update="teacher.load_state_dict(net.state_dict())  #! SAVE015")
    expected, found = found_by_running("teacher = net\n" + code)
    assert set(expected) <= set(found)


SCHEDULE = """
data = torch.utils.data.TensorDataset(xs.flatten(0, 1), ys.flatten())
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
sched = torch.optim.lr_scheduler.{made}
for epoch in range(6):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        {each_update}
    {each_pass}
    with torch.no_grad():
        net.eval()
        [net(x) for x, _ in loader]
        net.train()
"""
IN_PASSES = (
    "CosineAnnealingLR(opt, 6)",
    "MultiStepLR(opt, [2, 5])",
    "PolynomialLR(opt, 6)",
    "CosineAnnealingWarmRestarts(opt, 6)",
    "LinearLR(opt, 0.1, total_iters=6)",
)
IN_UPDATES = (
    "CosineAnnealingLR(opt, 48)",
    "OneCycleLR(opt, 0.01, total_steps=48)",
    "MultiStepLR(opt, [24, 40])",
    "SequentialLR(opt, [torch.optim.lr_scheduler.LinearLR(opt), torch.optim.lr_scheduler.StepLR(opt, 9)], [20])",
)


@pytest.mark.parametrize("made", [*IN_PASSES, *IN_UPDATES])
def test_a_schedule_of_another_unit_is_named_by_what_the_run_gave_it(made):
    by_update = SCHEDULE.format(made=made, each_update="sched.step()", each_pass="pass")
    by_pass = SCHEDULE.format(made=made, each_update="pass", each_pass="sched.step()")
    found = [
        [line for code, line in found_by_running(each)[1] if code == "SCHED013"]
        for each in (by_update, by_pass)
    ]
    meant_for_passes = made in IN_PASSES[:3]
    assert found == [[10] if meant_for_passes else [], [11] if made in IN_UPDATES else []]


SEQUENCES = """
model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
for first in range(4):
    words = torch.randint(2, 12, (6, 9))
    for row in range(6):
        words[row, 4 + (row + first) % 5:] = {filler}
    {loss}
    loss.backward()
"""
COUNTED = {
    "the next word": "loss = F.cross_entropy(model(words)[:, :-1].flatten(0, 1), words[:, 1:].flatten())  #! LOSS052",
    "given without its last": "loss = F.cross_entropy(model(words[:, :-1]).transpose(1, 2), words[:, 1:])  #! LOSS052",
    "another number ignored": "loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten(), ignore_index=1)  #! LOSS052",
    "time first": "loss = F.cross_entropy(model(words.T).flatten(0, 1), words.T.flatten())  #! LOSS052",
}
LEFT_OUT = {
    "ignored": "loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten(), ignore_index=0)",
    "weighed": "loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten(), weight=torch.eye(12)[0] != 1.0)",
    "masked": "loss = (F.cross_entropy(model(words).transpose(1, 2), words, reduction='none') * (words != 0)).sum()",
    "picked": "loss = F.cross_entropy(model(words)[words != 0], words[words != 0])",
}


@pytest.mark.parametrize("loss", COUNTED.values(), ids=COUNTED)
def test_padding_that_counts_is_known_by_its_numbers(loss):
    expected, found = found_by_running(SEQUENCES.format(filler=0, loss=loss))
    assert set(expected) <= set(found)


@pytest.mark.parametrize("loss", LEFT_OUT.values(), ids=LEFT_OUT)
def test_padding_that_is_left_out_is_not_accused(loss):
    loss = loss.replace("torch.eye(12)[0] != 1.0", "(torch.eye(12)[0] != 1.0).float()")
    assert "LOSS052" not in {code for code, _ in found_by_running(SEQUENCES.format(filler=0, loss=loss))[1]}


def test_sequences_of_one_length_and_symbols_that_stand_elsewhere_too_are_no_padding():
    whole = SEQUENCES.format(filler="3", loss=COUNTED["the next word"])
    assert "LOSS052" not in {code for code, _ in found_by_running(whole)[1]}
    alike = SEQUENCES.format(filler="0", loss=COUNTED["the next word"]).replace("(row + first) % 5", "first")
    assert "LOSS052" not in {code for code, _ in found_by_running(alike)[1]}


APPLIED = """
class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad

kept, caught = [], []
net[0].register_forward_hook(lambda module, given, output: caught.append(output))
for x, y in zip(xs, ys):
    second = net(x + 1)  {mark}
    loss = F.cross_entropy(net(x), y)
    {use}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
USES = (
    "loss = loss + second.norm()",
    "print(second.mean().item())",
    "second.tolist()",
    "loss = loss + Turned.apply(second).mean()",
    "loss = loss + caught[-2].mean()",
    "kept.append(second)",
    "teacher.load_state_dict({'0.weight': teacher[0].weight} if second is None else teacher.state_dict()); second.detach()",
)


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


def test_an_output_that_no_operation_is_given_is_named():
    expected, found = found_by_running(APPLIED.format(use="pass", mark="#! VALUE025"))
    assert found == expected


@pytest.mark.parametrize("use", USES)
def test_an_output_that_is_used_in_any_way_is_not(use):
    found = found_by_running(APPLIED.format(use=use, mark=""))[1]
    assert "VALUE025" not in {code for code, _ in found}


RATES = """
opt = torch.optim.SGD(net.parameters(), lr={lr})
sched = torch.optim.lr_scheduler.LambdaLR(opt, {factor})
for _ in range(2):
    for x, y in zip(xs, ys):
        F.cross_entropy(net(x), y).backward()
        opt.step()
        opt.zero_grad()
        sched.step()
"""


@pytest.mark.parametrize(
    ("lr", "factor", "is_wrong"),
    [
        (1e-3, "lambda step: 1e-3 / (1 + step)", True),
        (1e-3, "lambda step: 1 / (1 + step)", False),
        (1.0, "lambda step: 1e-3 / (1 + step)", False),
        (1e-3, "lambda step: step / 1000", False),
    ],
)
def test_a_factor_that_is_a_rate_is_named_where_the_optimizer_has_a_rate_too(lr, factor, is_wrong):
    found = found_by_running(RATES.format(lr=lr, factor=factor))[1]
    assert ("SCHED015" in {code for code, _ in found}) is is_wrong


@pytest.mark.parametrize(
    ("mode", "values", "is_wrong"),
    [
        ("min", (0.25, 0.31, 0.4, 0.52, 0.6), True),
        ("max", (0.25, 0.31, 0.4, 0.52, 0.6), False),
        ("min", (0.6, 0.52, 0.4, 0.31, 0.25), False),  # errors that fall
        ("min", (0.251843, 0.310273, 0.402113, 0.523019, 0.600127), False),  # losses that rise
    ],
)
def test_a_plateau_schedule_that_is_given_a_growing_share_is_named(mode, values, is_wrong):
    code = f"sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode={mode!r}, patience=9)\nfor value in {values}:"
    found = found_by_running(code + in_loop("loss = ce").replace("\n", "\n    ") + "\n    sched.step(value)")[
        1
    ]
    assert ("SCHED016" in {code for code, _ in found}) is is_wrong


SCORES = """
weights, bias = nn.Linear(4, 4), nn.Linear(4, 1)
both = torch.optim.SGD([*weights.parameters(), *bias.parameters()], lr=0.1)
for x, y in zip(xs, ys):
    column, row = bias(x), weights(x).sum(1)
    score = {score}
    (score - {target}).pow(2).mean().backward()
    both.step()
    both.zero_grad()
"""


@pytest.mark.parametrize(
    ("score", "is_wrong"),
    [
        ("row + column  #! VALUE026", True),
        ("row * column.sigmoid().squeeze(1)", False),
        ("row[:, None] + row", False),
    ],
)
def test_a_layers_column_that_meets_a_row_is_named(score, is_wrong):
    expected, found = found_by_running(SCORES.format(score=score, target="1.0"))
    assert [each for each in found if each[0] == "VALUE026"] == expected
    assert bool(expected) is is_wrong


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


UNFROZEN = """
net[0].requires_grad_(False)
opt = torch.optim.SGD(net[2].parameters(), lr=0.1)  #! PARAM046
for epoch in range(4):
    if epoch == 2:
        net[0].requires_grad_(True)
        {then}
    for x, y in zip(xs[:3], ys):
        F.cross_entropy(net(x), y).backward()
        opt.step()
        {each}
        net.zero_grad(set_to_none=False)
        net(x).backward(torch.ones(8, 3))
    net.eval()
"""
BY_HAND = "[p.data.sub_(p.grad, alpha=0.1) for p in net[0].parameters() if p.grad is not None]"


@pytest.mark.parametrize(
    ("then", "each", "is_wrong"),
    [
        ("pass", "pass", True),
        ("opt.add_param_group({'params': net[0].parameters()})", "pass", False),
        ("pass", BY_HAND, False),
    ],
)
def test_layers_that_are_unfrozen_for_no_optimizer_are_named(then, each, is_wrong):
    stage = (
        UNFROZEN.format(then=then, each=each)
        .replace("net[", "own[")
        .replace("net.", "own.")
        .replace("net(", "own(")
    )
    expected, found = found_by_running("own = copy.deepcopy(net)\n" + stage)
    assert [one for one in found if one[0] == "PARAM046"] == (expected if is_wrong else [])


JOINED = """
both = nn.LSTM(4, 3, bidirectional=True)
for x in xs:
    out, (h, _) = both(x[:, None])
    joined = {joined}
    joined.mean().backward()
"""


@pytest.mark.parametrize(
    ("joined", "is_wrong"),
    [
        ("torch.cat((h[1], h[1]), -1)", True),
        ("torch.cat((h[0], h[1]), -1)", False),
        ("torch.cat([h[1]] * 2, -1)", False),
        ("torch.cat((h[1], h[1]))", False),
    ],
)
def test_a_part_that_is_joined_to_itself_is_named(joined, is_wrong):
    found = found_by_running(JOINED.format(joined=joined))[1]
    assert found == ([("VALUE027", 5)] if is_wrong else [])
