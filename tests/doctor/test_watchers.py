# SPDX-License-Identifier: Apache-2.0
"""The contract of every watcher and probe: its examples are run, on real torch, under all watchers."""

import re
import warnings

import pytest
import torch
import torch._dynamo

from truestep.doctor.catalogue import checks
from truestep.doctor.page import PRELUDE
from truestep.doctor.probe_base import Probe
from truestep.doctor.runtime.watch import Watch, WatchOptions
from truestep.doctor.selection import CheckSelection
from truestep.doctor.watcher_base import Watcher

RUNNERS = [check for check in checks().values() if issubclass(check, Watcher | Probe)]

# What the examples of watchers may use without making it.
STAGE = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.arange(32) % 3), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(16, 4), torch.arange(16) % 3), batch_size=8)
x, y = torch.randn(8, 4), torch.arange(8) % 3
data = loader.dataset
evaluate = train = lambda *_: None
epochs = 3
"""
# Their examples need more than one process or device, or names that only a reader understands.
NEEDS = {
    "AMP007": "a GPU",
    "DIST001": "a process group",
    "PARAM005": "a model with a head",
}
ON_REQUEST = {"GRAD030"}


def run_example(code, thorough=False, probe=False):
    """Run an example under watch; relations are tried in nine children each time, and are tested in tests/doctor/experiments.

    The three probes fork three children each time: good examples of all checks and their own have them, what else runs has none.
    """
    selection = CheckSelection(ignore=("REL",), preview=True)
    options = WatchOptions(selection, probe=probe, thorough=thorough)
    with Watch(options) as watched, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of some of these itself
        names = {"__name__": "__example__"}
        exec(compile(PRELUDE + STAGE, "<stage>", "exec"), names)
        exec(compile(code, "<example>", "exec"), names)
    assert watched.failures == []
    return watched


def found(watched):
    """Return codes and lines of what watchers found."""
    return [(each.code, each.place.line) for each in watched.findings]


def run_state(code, thorough):
    """Return the weights, and the random state, that are left after an example."""
    names = {"__name__": "__example__"}
    with Watch(WatchOptions(probe=True, thorough=thorough)):
        exec(compile(PRELUDE + STAGE, "<stage>", "exec"), names)
        exec(compile(code, "<example>", "exec"), names)
    return {**names["net"].state_dict(), "random state": torch.get_rng_state()}


def by_code(check):
    return check.code


def runs(check):
    reason = f"its examples need {NEEDS.get(check.code)}"
    return pytest.param(check, marks=pytest.mark.skipif(check.code in NEEDS, reason=reason))


@pytest.mark.parametrize("check", [runs(each) for each in RUNNERS], ids=by_code)
def test_bad_gives_exactly_this_finding_when_it_runs(check):
    watched = run_example(check.page().bad, thorough=check.code in ON_REQUEST, probe=issubclass(check, Probe))
    expected = [(check.code, line) for line in check.page().marked_lines]
    assert found(watched) == expected
    assert all(each.place.path == "<example>" for each in watched.findings)
    assert {each.severity for each in watched.findings if each.code == check.code} <= set(check.severities())


@pytest.mark.parametrize("check", [runs(each) for each in RUNNERS], ids=by_code)
def test_good_gives_nothing_when_it_runs(check):
    assert run_example(check.page().good, thorough=True, probe=True).findings == []


def test_a_replaced_head_is_seen_at_the_optimizer():
    code = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x).relu())

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.head = nn.Linear(8, 3)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
"""
    assert [(each.code, each.place.line) for each in run_example(code).findings] == [("PARAM005", 11)]


def test_a_sampler_that_begins_again_is_seen_at_the_loop():
    code = """
sampler = DistributedSampler(data, num_replicas=1, rank=0)
batches = DataLoader(data, batch_size=8, sampler=sampler)
for epoch in range(2):
    for x, y in batches:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
"""
    assert [(each.code, each.place.line) for each in run_example(code).findings] == [("DIST001", 5)]
    right = code.replace("    for x, y in batches", "    sampler.set_epoch(epoch)\n    for x, y in batches")
    assert run_example(right).findings == []

    step = code[code.index("    for x, y in batches") :]
    twice = right + step.replace("batches", "list(batches)")  # each epoch has two passes
    assert run_example(twice).findings == []
    once = code.replace("for epoch in", "sampler.set_epoch(0)\nfor epoch in").replace("range(2)", "range(3)")
    assert [(each.code, each.place.line) for each in run_example(once).findings] == [("DIST001", 6)]


def test_float16_whose_scaler_was_switched_off_is_seen():
    code = """
scaler = torch.amp.GradScaler("cpu", enabled=False)
for x, y in loader:
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(x), y)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""
    assert [(each.code, each.place.line) for each in run_example(code).findings] == [("AMP007", 6)]
    assert run_example(code.replace("enabled=False", "init_scale=4.0")).findings == []


def test_a_difference_written_by_hand_that_broadcasts_is_seen():
    code = """
head = nn.Linear(4, 1)
opt = torch.optim.SGD(head.parameters(), lr=0.01)
for x, y in loader:
    opt.zero_grad()
    ((head(x) - y) ** 2).mean().backward()
    opt.step()
"""
    assert [(each.code, each.place.line) for each in run_example(code).findings] == [("LOSS017", 6)]
    assert run_example(code.replace("head(x) - y", "head(x).squeeze(1) - y")).findings == []


def test_a_model_of_which_backward_reaches_nothing_is_seen_at_the_step():
    code = """
other = nn.Linear(4, 3)
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(other(x), y).backward()
    opt.step()
"""
    assert found(run_example(code)) == [("GRAD024", 6)]


def test_what_learns_a_batch_leaves_no_trace():
    code = checks()["GRAD030"].page().good
    plain, thorough = (run_state(code, thorough=each) for each in (False, True))
    assert all(torch.equal(plain[name], thorough[name]) for name in plain)


def test_a_model_that_returns_its_loss_first_has_no_batch_to_learn():
    code = """
class Net(nn.Linear):
    def forward(self, x, labels):
        logits = super().forward(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}
net = Net(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for step in range(4):
    opt.zero_grad()
    net(torch.randn(16, 4), labels=torch.randint(2, (16,)))["loss"].backward()
    opt.step()
"""
    assert found(run_example(code, thorough=True)) == []


def test_units_that_die_one_example_at_a_time_are_seen_at_the_optimizer():
    code = """
net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
nn.init.constant_(net[0].weight, 0.1)
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
for step in range(16):
    opt.zero_grad()
    loss = F.cross_entropy(net(torch.full((4,), 5.0)), torch.tensor(step % 3))
    loss.backward()
    opt.step()
    if step == 3:
        nn.init.constant_(net[0].bias, -10.0)
"""
    (finding,) = run_example(code).findings
    assert (finding.code, finding.place.line, finding.evidence) == ("PARAM018", 4, {"after_steps": 4})


@pytest.mark.parametrize(("rate", "found"), [(5.0, ["GRAD025"]), (0.01, [])])
def test_gradients_that_grow_a_thousandfold_explode(rate, found):
    code = f"""
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(5):
    for x, y in loader:
        opt.zero_grad()
        (net(x).squeeze(1) - y).square().mean().backward()
        opt.step()
    opt.param_groups[0]["lr"] = {rate}
"""
    assert [each.code for each in run_example(code).findings] == found


@pytest.mark.parametrize(("target", "found"), [("torch.full((8,), -100)", ["LOSS019"]), ("y", [])])
def test_a_loss_of_targets_that_are_all_ignored_is_told_once(target, found):
    code = f"F.cross_entropy(net(x), {target}).backward()"
    assert [each.code for each in run_example(code).findings] == found


@pytest.mark.parametrize(("clipped", "found"), [("before", ["GRAD008"]), ("behind", [])])
def test_a_clip_that_finds_no_gradient_is_seen(clipped, found):
    clip, parts = "    nn.utils.clip_grad_norm_(net.parameters(), 1.0)", {"before": "", "behind": ""}
    parts[clipped] = clip
    code = f"""
for x, y in loader:
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
{parts["before"]}
    loss.backward()
{parts["behind"]}
    opt.step()
"""
    assert [each.code for each in run_example(code).findings] == found


@pytest.mark.parametrize(("layer", "found"), [("nn.Sigmoid", ["GRAD025"]), ("nn.Tanh", [])])
def test_gradients_that_adam_s_eps_swallows_have_vanished(layer, found):
    code = f"""
layers = [each for _ in range(6) for each in (nn.Linear(32, 32), {layer}())]
net = nn.Sequential(*layers, nn.Linear(32, 400), nn.Sigmoid())
opt = torch.optim.Adam(net.parameters(), lr=5e-4)
inputs, goals = torch.rand(16, 32), torch.rand(16, 400)
for _ in range(12):
    opt.zero_grad()
    F.binary_cross_entropy(net(inputs), goals).backward()
    opt.step()
"""
    assert [each.code for each in run_example(code).findings] == found


def test_a_layer_that_another_optimizer_s_loss_reaches_is_used():
    code = """
body, left, right = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 1)
both = nn.ModuleList([body, left, right])
first = torch.optim.SGD(both.parameters(), lr=0.1)
second = torch.optim.SGD(right.parameters(), lr=0.1)
for x, y in [*loader, *loader, *loader]:
    first.zero_grad()
    F.cross_entropy(left(body(x)), y).backward()
    first.step()
    second.zero_grad()
    F.mse_loss(right(body(x).detach()), x[:, :1]).backward()
    second.step()
"""
    assert "PARAM016" not in [each.code for each in run_example(code).findings]


@pytest.mark.parametrize(("passes", "found"), [(3, []), (40, ["PARAM016"])])
def test_a_member_of_a_list_of_layers_may_be_chosen_later(passes, found):
    code = f"""
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 3) for _ in range(3))

    def forward(self, x):
        return self.experts[0](x) + self.experts[1](x)


net = Experts()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range({passes}):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
"""
    assert [each.code for each in run_example(code).findings if each.code == "PARAM016"] == found


@pytest.mark.parametrize(("unfrozen", "found"), [(True, []), (False, ["PARAM014"])])
def test_one_of_two_optimizers_may_hold_what_is_unfrozen_later(unfrozen, found):
    code = f"""
body, head = nn.Linear(4, 6), nn.Linear(6, 3)
first = torch.optim.SGD(body.parameters(), lr=0.1)
second = torch.optim.SGD(head.parameters(), lr=0.1)
body.requires_grad_(False)
for epoch in range(3):
    if {unfrozen} and epoch == 1:
        body.requires_grad_(True)
    for x, y in loader:
        first.zero_grad()
        second.zero_grad()
        F.cross_entropy(head(body(x)), y).backward()
        first.step()
        second.step()
"""
    assert [each.code for each in run_example(code).findings if each.code == "PARAM014"] == found


def test_an_optimizer_that_replaces_another_shares_nothing_with_it():
    code = """
for rate in (0.1, 0.01):
    opt = torch.optim.SGD(net.parameters(), lr=rate)
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
"""
    assert run_example(code).findings == []


def test_a_norm_that_follows_another_is_not_frozen():
    code = """
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
average = nn.BatchNorm1d(8).requires_grad_(False)
both = nn.ModuleList([net, average])
opt = torch.optim.SGD(net.parameters(), lr=0.1)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.average = net, average

    def forward(self, x):
        with torch.no_grad():
            self.average(self.net[0](x))
        return self.net(x)


pair = Pair()
for x, y in [*loader, *loader]:
    opt.zero_grad()
    F.cross_entropy(pair(x), y).backward()
    opt.step()
    with torch.no_grad():
        average.weight.lerp_(net[1].weight, 0.1)
"""
    assert run_example(code).findings == []


def found_in(code):
    return [(each.code, each.place.line, each.severity.value) for each in run_example(code).findings]


def test_dropout_as_a_function_is_seen_where_the_model_is_evaluated():
    code = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(F.dropout(self.first(x), 0.5, training=self.training))


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
with torch.no_grad():
    net(x).argmax(1)
net.eval()
with torch.no_grad():
    net(x).argmax(1)
"""
    assert found_in(code) == [("EVAL002", 18, "bug")]


@pytest.mark.parametrize(
    "layer", ["nn.MultiheadAttention(4, 2, dropout=0.1)", "nn.LSTM(4, 4, 2, dropout=0.1)"]
)
def test_dropout_within_attention_and_recurrence_is_seen(layer):
    arguments = "x, x, x" if "Attention" in layer else "x"
    code = f"""
net = {layer}
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    x = torch.randn(5, 2, 4)
    opt.zero_grad()
    net({arguments})[0].square().mean().backward()
    opt.step()
with torch.no_grad():
    net({arguments})[0].mean()
"""
    assert ("EVAL002", 10, "bug") in found_in(code)


def test_dropout_switched_on_in_eval_mode_is_asked_about():
    code = """
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
net.eval()
net[1].train()
with torch.no_grad():
    net(x).argmax(1)
"""
    assert found_in(code) == [("EVAL002", 11, "question")]


def test_gradients_of_one_of_two_losses_cleared_before_its_step_are_seen():
    code = """
other = nn.Linear(4, 3)
second = torch.optim.SGD(other.parameters(), lr=0.1)
for x, y in loader:
    second.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.zero_grad()
    F.cross_entropy(other(x), y).backward()
    opt.step()
    second.step()
"""
    assert ("GRAD004", 7, "bug") in found_in(code)


def test_gradients_cleared_at_the_end_of_a_closure_are_seen():
    code = """
opt = torch.optim.LBFGS(net.parameters(), max_iter=3)


def closure():
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.zero_grad()
    return loss


for _ in range(3):
    opt.step(closure)
"""
    assert found_in(code) == [("GRAD004", 8, "bug")]


@pytest.mark.parametrize(("end", "found"), [("pass", [("GRAD007", 3, "bug")]), ("opt.step()", [])])
def test_gradients_that_nothing_steps_on_are_seen(end, found):
    code = f"""for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
{end}
"""
    assert found_in(code) == found


def test_a_target_with_gradients_that_nobody_uses_is_seen_where_it_is_applied():
    code = """
target = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
for x, y in [*loader, *loader]:
    opt.zero_grad()
    goal = target(x)
    F.mse_loss(net(x), goal).backward()
    opt.step()
"""
    assert found_in(code) == [("PARAM015", 5, "advice")]


def test_weights_updated_by_hand_need_no_optimizer():
    code = """
other = nn.Linear(4, 3)
for x, y in [*loader, *loader]:
    opt.zero_grad()
    other.zero_grad()
    F.cross_entropy(net(x) + other(x), y).backward()
    opt.step()
    with torch.no_grad():
        for each in other.parameters():
            each -= 0.1 * each.grad
"""
    assert found_in(code) == []


def test_pictures_drawn_of_one_input_between_batches_are_not_alike_by_mistake():
    code = """
for x, y in [*loader, *loader]:
    opt.zero_grad()
    F.cross_entropy(net(x[:2]), y[:2]).backward()
    opt.step()
    drawn = net(x[:1].repeat(5, 1)).detach()
"""
    assert [each.code for each in run_example(code).findings] == []


def test_units_that_never_live_in_single_examples_are_seen_at_the_optimizer():
    code = """
net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
nn.init.constant_(net[0].weight, -0.1)
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
for step in range(18):
    opt.zero_grad()
    F.cross_entropy(net(torch.full((4,), 5.0)), torch.tensor(step % 3)).backward()
    opt.step()
"""
    (finding,) = run_example(code).findings
    assert (finding.code, finding.place.line, finding.evidence) == ("PARAM018", 4, {"after_steps": 0})


def test_a_model_that_no_optimizer_holds_is_never_trained():
    code = """
encoder, decoder = nn.Linear(4, 8), nn.Linear(8, 3)
opt = torch.optim.SGD(decoder.parameters(), lr=0.1)
for x, y in [*loader, *loader]:
    opt.zero_grad()
    encoder.zero_grad()
    codes = encoder(x)
    F.cross_entropy(decoder(codes), y).backward()
    opt.step()
"""
    (finding,) = run_example(code).findings
    assert (finding.code, finding.place.line, finding.severity) == ("PARAM015", 7, "risk")
    assert finding.message.startswith("encoder (Linear) is never trained")
    kept = "encoder.load_state_dict(nn.Linear(4, 8).state_dict())\n"
    given = code.replace("opt = torch", f"{kept}opt = torch")
    assert [each[::2] for each in found_in(given)] == [("PARAM015", "advice")]


@pytest.mark.parametrize(
    ("made", "severity"),
    [
        ("torch.zeros(())", "risk"),
        ("torch.zeros(2)", "risk"),
        ("torch.ones(2)", "risk"),
        ("torch.tensor([0.5, 0.3])", "advice"),  # maybe of another model
    ],
)
def test_weights_of_losses_that_no_optimizer_holds_are_no_copy(made, severity):
    code = f"""
class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.logs = nn.Parameter({made})

    def forward(self, loss):
        return (torch.exp(-self.logs) * loss + self.logs).sum()

weigh = Weighted()
for x, y in [*loader, *loader]:
    opt.zero_grad()
    loss = weigh(F.cross_entropy(net(x), y))
    loss.backward()
    opt.step()
"""
    assert [(code, found) for code, _, found in found_in(code)] == [("PARAM015", severity)]


ACCUMULATED = """
net.zero_grad()
opt = torch.optim.{kind}(net.parameters(), lr=0.01)
batches = [batch for _ in range(5) for batch in loader]
for i, (x, y) in enumerate(batches):
    loss = F.cross_entropy(net(x), y{more}){divided}
    loss.backward()
    if i % 4 == 3:
        opt.step()
        opt.zero_grad()
"""


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, [("GRAD005", 7, "risk")]),
        ({"kind": "AdamW"}, []),
        ({"divided": " / 4"}, []),
        ({"more": ", reduction='sum'"}, []),
    ],
)
def test_batches_that_are_added_up_are_counted(changes, found):
    code = ACCUMULATED.format(**{"kind": "SGD", "more": "", "divided": "", **changes})
    assert found_in(code) == found


def test_two_losses_of_one_step_are_no_accumulation():
    code = """
for x, y in [*loader, *loader]:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    F.cross_entropy(net(x + 0.1), y).backward()
    opt.step()
"""
    assert found_in(code) == []


@pytest.mark.parametrize("clear", ["opt.zero_grad()", "net.zero_grad(set_to_none=False)", "clear_by_hand()"])
def test_gradients_that_are_cleared_hold_nothing_of_earlier_steps(clear):
    code = f"""
def clear_by_hand():
    for each in net.parameters():
        each.grad = None


for x, y in [*loader, *loader]:
    F.cross_entropy(net(x), y).backward()
    {clear}
    opt.step()
"""
    assert "GRAD001" not in [each.code for each in run_example(code).findings]


@pytest.mark.parametrize(
    ("labels", "found"),
    [("y.float().unsqueeze(1)", []), ("y.float()", [("LOSS017", 6, "bug")])],
)
def test_a_comparison_that_makes_a_square_is_seen_where_it_stands(labels, found):
    code = f"""
head = nn.Linear(4, 1)
labels = {labels}
with torch.no_grad():
    outputs = (head(x).sigmoid() > 0.5).float()
    right = (outputs == labels).float().mean()
"""
    assert found_in(code) == found


def test_labels_compared_each_with_each_are_meant():
    code = """
labels = y.view(-1, 1)
same = (labels == y).float()
same = (labels == labels.T).float()
"""
    assert found_in(code) == []


def test_one_batch_for_ever_and_one_example_at_a_time_are_no_epochs():
    code = """
for _ in range(8):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
for _ in range(3):
    for i in range(3):
        opt.zero_grad()
        F.cross_entropy(net(x[i : i + 1]), y[i : i + 1]).backward()
        opt.step()
"""
    assert found_in(code) == []


@pytest.mark.parametrize(
    ("end", "found"),
    [(0.0, []), (1e-7, [("SCHED010", 9, "bug")])],
)
def test_a_rate_that_reaches_nothing_at_the_very_end_has_not_collapsed(end, found):
    code = f"""
length = 60 if {end} else 400
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: max({end}, 1 - step / length))
inputs = [batch for _ in range(100) for batch in loader]
for x, y in inputs:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
    sched.step()
"""
    assert [each[:3] for each in found_in(code)] == found


@pytest.mark.sliced(2)
@pytest.mark.parametrize("factor", [0.3, 0.5, 0.75, 0.9])
def test_a_collapsed_rate_is_named_with_the_step_that_had_it(factor):
    code = f"""
sched = torch.optim.lr_scheduler.ExponentialLR(opt, {factor})
inputs = [batch for _ in range(100) for batch in loader]
for x, y in inputs:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
    sched.step()
"""
    (message,) = [each.message for each in run_example(code).findings if each.code == "SCHED010"]
    found = re.search(r"from (\S+) to (\S+) by step (\d+); (\d+) steps later it is (\S+), and", message)
    highest, rate, step, more, later = map(float, found.groups())
    assert highest == 0.1
    assert rate == pytest.approx(
        0.1 * factor ** (step - 1), rel=0.01
    )  # the step used it, the schedule then lowered it
    assert later == pytest.approx(0.1 * factor ** (step + more - 1), rel=0.01)
    assert rate <= 1e-6


SCHED = "sched = torch.optim.lr_scheduler.StepLR(opt, 2)"
SCHEDULED = """
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max={length})
inputs = [batch for _ in range(8) for batch in loader][:16]
for i, (x, y) in enumerate(inputs):
    (F.cross_entropy(net(x), y) / 4).backward()
    if (i + 1) % 4 == 0:
        {before}opt.step()
        opt.zero_grad()
    {every}
"""


@pytest.mark.parametrize(
    ("length", "before", "every", "found"),
    [
        (4, "", "sched.step()", []),
        (4, "sched.step(); ", "pass", [("SCHED001", 7, "bug")]),
        (4, "", "(i + 1) % 4 or sched.step()", []),
    ],
)
def test_a_schedule_stepped_in_every_micro_batch_is_not_one_stepped_first(length, before, every, found):
    seen = found_in(SCHEDULED.format(length=length, before=before, every=every))
    assert [each[:3] for each in seen] == found


def test_a_critic_that_steps_more_often_is_no_accumulation():
    code = """
critic = nn.Linear(4, 1)
slow = torch.optim.SGD(critic.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(slow, 4)
inputs = [batch for _ in range(4) for batch in loader][:16]
for i, (x, y) in enumerate(inputs):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
    if (i + 1) % 4 == 0:
        slow.zero_grad()
        critic(x).mean().backward()
        slow.step()
        sched.step()
"""
    assert [each[0] for each in found_in(code) if each[0].startswith("SCHED")] == []


def test_a_fix_names_the_model_that_ran():
    code = """
student = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
trainer = torch.optim.SGD(student.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        trainer.zero_grad()
        F.cross_entropy(student(x), y).backward()
        trainer.step()
    student.eval()
"""
    (finding,) = [each for each in run_example(code).findings if each.code == "EVAL003"]
    assert finding.fix == "student.train() after each evaluation, before the next batch is trained on."


INTERFACES = {
    "an averager": ("state = self.state[p].setdefault('average', p.clone()).lerp_(p, 0.1)", []),
    "weights put back slowly": ("p.lerp_(self.state[p].setdefault('slow', p.clone()), 0.5)", []),
    "a record of gradients": ("self.state[p]['norm'] = p.grad.norm()", []),
    "an optimizer": ("p.sub_(p.grad, alpha=0.1)", ["PARAM023"]),
    "an optimizer by .data": ("p.data -= 0.1 * p.grad.data", ["PARAM023"]),
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("line", INTERFACES)
@pytest.mark.parametrize("base", ["torch.optim.Optimizer", "torch.optim.SGD"])
def test_a_second_optimizer_is_one_that_reads_gradients_and_moves_weights(line, base):
    does, codes = INTERFACES[line]
    code = f"""
class Other({base}):
    def __init__(self, params):
        super().__init__(params, {{}}) if {base} is torch.optim.Optimizer else super().__init__(params, lr=0.1)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                {does}


other = Other(net.parameters())
for _ in range(2):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        other.step()
"""
    assert [each.code for each in run_example(code).findings] == codes
    turned = code.replace(
        "        opt.step()\n        other.step()\n", "        other.step()\n        opt.step()\n"
    )
    assert [each.code for each in run_example(turned).findings] == codes


def test_an_optimizer_that_steps_within_another_is_a_part_of_it():
    code = """
class Outer(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            p.add_(p.grad, alpha=0.01)
        self.inner.step()


outer = Outer(opt)
for _ in range(2):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        outer.step()
"""
    assert run_example(code).findings == []


# where four micro-batches are brought to the size of one, by the line that does it: before the window, in it, at its end
DIVIDED = {
    "the loss in place": ("", "loss /= 4; loss.backward()", ""),
    "by a method, in place": ("", "loss.div_(4); loss.backward()", ""),
    "where the backward begins": ("", "loss.backward(torch.tensor(0.25))", ""),
    "where the backward begins, by name": (
        "",
        "torch.autograd.backward(loss, grad_tensors=torch.tensor(0.25))",
        "",
    ),
    "the gradients": ("", "loss.backward()", "for p in net.parameters(): p.grad /= 4"),
    "the gradients anew": ("", "loss.backward()", "for p in net.parameters(): p.grad = p.grad / 4"),
    "the gradients after a clip": (
        "",
        "loss.backward()",
        "nn.utils.clip_grad_norm_(net.parameters(), 9.0); torch._foreach_div_([p.grad for p in net.parameters()], 4)",
    ),
    "by hooks": ("for p in net.parameters(): p.register_hook(lambda grad: grad / 4)", "loss.backward()", ""),
    "before the step": (
        "opt.register_step_pre_hook(lambda *_: torch._foreach_div_([p.grad for p in net.parameters()], 4) and None)",
        "loss.backward()",
        "",
    ),
}
UNDIVIDED = {
    "nothing": ("", "loss.backward()", ""),
    "a clip alone": ("", "loss.backward()", "nn.utils.clip_grad_norm_(net.parameters(), 9.0)"),
    "a copy": ("", "shown = loss / 4; loss.backward()", ""),
}


@pytest.mark.sliced(4)
@pytest.mark.parametrize("way", [*DIVIDED, *UNDIVIDED])
def test_micro_batches_are_divided_in_many_ways(way):
    before, backward, end = {**DIVIDED, **UNDIVIDED}[way]
    code = f"""
{before}
for epoch in range(4):
    for x, y in loader:
        loss = F.cross_entropy(net(x), y)
        {backward}
    {end or "pass"}
    opt.step()
    opt.zero_grad()
"""
    assert [each.code for each in run_example(code).findings] == ["GRAD005"] * (way in UNDIVIDED)


@pytest.mark.parametrize(
    ("first", "last", "codes"),
    [
        ("x = x", "pass", []),
        ("x = x", "loss.item()", ["GRAD001"]),
        ("x = x", "print(f'{loss:.3f}')", ["GRAD001"]),
        ("x, y = next(iter(loader))", "pass", ["GRAD001"]),
    ],
)
def test_a_loop_that_is_there_for_its_duration_need_not_clear(first, last, codes):
    code = f"""
import time

began = time.perf_counter()
for _ in range(5):
    {first}
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    {last}
duration = time.perf_counter() - began
"""
    assert [each.code for each in run_example(code).findings] == codes


@pytest.mark.parametrize(
    ("kept", "codes"), [("[p.grad.clone() for p in net.parameters()]", []), ("loss.item()", ["GRAD004"])]
)
def test_gradients_that_are_kept_before_they_are_cleared_are_not_lost(kept, codes):
    code = f"""
for x, y in loader:
    kept = []
    for turn in range(2):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), (y + turn) % 3)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 9.0)
        kept.append({kept})
    opt.step()
"""
    assert [each.code for each in run_example(code).findings] == codes


def test_the_rows_of_a_packed_sequence_are_no_examples():
    code = """
lstm = nn.LSTM(4, 6, batch_first=True)
opt = torch.optim.SGD(lstm.parameters(), lr=0.1)
for _ in range(3):
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 5, 4), torch.tensor([5, 4, 3, 2]), batch_first=True)
    opt.zero_grad()
    lstm(packed)[0].data.square().mean().backward()
    opt.step()
"""
    assert run_example(code, probe=True).findings == []


def test_a_warm_up_that_outlasts_two_passes_is_named_by_the_steps_of_its_schedule():
    code = """
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / LENGTH))
for epoch in range(2):
    for x, y in loader:
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
        sched.step()
"""
    for length, named in (("1000", True), ("4", False)):
        found = run_example(code.replace("LENGTH", length)).findings
        assert ("SCHED010" in {each.code for each in found}) is named


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("net(x) + 3", [("LOSS003", "risk")]),  # the operation says nothing: the numbers do
        ("3 * torch.tanh(net(x)) + 3", [("LOSS003", "risk")]),
        ("torch.log_softmax(net(x), 1)", []),
        ("net(x) - net(x).logsumexp(1, keepdim=True)", []),
        ("(net(x).softmax(1) + 1e-4).log()", []),  # rounding, and what is added against log(0), is smaller
    ],
)
def test_numbers_above_0_are_no_log_probabilities(made, expected):
    code = f"""
for x, y in loader:
    opt.zero_grad()
    F.nll_loss({made}, y).backward()
    opt.step()
"""
    found = {(code, severity) for code, _, severity in found_in(code) if code == "LOSS003"}
    assert sorted(found) == expected


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (f"{SCHED}\nopt = torch.optim.SGD(net.parameters(), lr=0.1)", True),
        (f"opts = {{'old': opt}}\n{SCHED}\nopt = torch.optim.Adam(net.parameters())", True),
        (f"opt = torch.optim.SGD(net.parameters(), lr=0.1)\n{SCHED}", False),
    ],
)
def test_a_schedule_of_an_optimizer_that_never_steps_is_named(made, found):
    code = f"""
{made}
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
    sched.step()
"""
    told = [each for each in run_example(code).findings if each.code == "SCHED001"]
    assert [each.severity.value for each in told] == ["bug"] * found
    assert all("never steps" in each.message for each in told)


def test_frozen_weights_are_not_told_that_their_gradients_were_cleared():
    code = """
for step, (x, y) in enumerate(loader):
    opt.zero_grad()
    x.requires_grad_(True)
    F.cross_entropy(net(x), y).backward()
    opt.step()
    net.requires_grad_(False)
"""
    assert not [each for each in found_in(code) if each[0] == "GRAD004"]
