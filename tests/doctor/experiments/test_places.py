# SPDX-License-Identifier: Apache-2.0
"""Where a batch is all that a step sees of the data, relations are tried; elsewhere the report says why they are not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

from truestep.doctor.check import RISK

pytestmark = needs_forks
CODES = ("REL002", "REL003")
PLAIN = """
def loss_of(x, y):
    return F.cross_entropy(net(x), y)
"""


def outcomes(code):
    """Return what came of the relations of a batch, and the findings."""
    watch = watched(PLAIN + code, CODES)
    told = {
        record.outcome if record.outcome != "not tried" else watch.experiments.why_not_tried(each)
        for each, record in watch.experiments.records.items()
    }
    return told, watch.findings


TRIED = {
    "one after another": """
for x, y in loader:
    opt.zero_grad()
    loss_of(x, y).backward()
    opt.step()
""",
    "accumulation over two batches": """
for epoch in range(3):
    for number, (x, y) in enumerate(loader):
        (loss_of(x, y) / 2).backward()
        if number % 2:
            opt.step()
            opt.zero_grad()
""",
    "accumulation over two batches that a worker loads": """
for epoch in range(3):
    for number, (x, y) in enumerate(DataLoader(data, batch_size=8, num_workers=1)):
        (loss_of(x, y) / 2).backward()
        if number % 2:
            opt.step()
            opt.zero_grad()
""",
    "accumulation over three batches that workers load in another order": """
for epoch in range(3):
    for number, (x, y) in enumerate(DataLoader(data, batch_size=4, num_workers=2, shuffle=True)):
        (loss_of(x, y) / 3).backward()
        if number % 3 == 2:
            opt.step()
            opt.zero_grad()
""",
    "a closure that is called again and again": """
opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
for x, y in loader:
    def closure():
        opt.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        return loss
    opt.step(closure)
""",
    "two optimizers for each batch": """
critic = nn.Linear(3, 1)
second = torch.optim.Adam(critic.parameters())
for x, y in loader:
    second.zero_grad()
    critic(net(x).detach()).square().mean().backward()
    second.step()
    opt.zero_grad()
    (loss_of(x, y) - critic(net(x)).mean()).backward()
    opt.step()
""",
    "noise, dropout and clipping": """
drop = nn.Dropout(0.5)
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(drop(x) + torch.randn_like(x)), y).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.01)
    opt.step()
""",
    "batches of workers": """
for x, y in DataLoader(data, batch_size=8, shuffle=True, num_workers=1):
    opt.zero_grad()
    loss_of(x, y).backward()
    opt.step()
""",
    "a batch that is held back, and a closure": """
def ahead(batches):
    waiting = None
    for batch in batches:
        if waiting is not None:
            yield waiting
        waiting = batch
    yield waiting
for epoch in range(2):
    for x, y in ahead(loader):
        def closure():
            opt.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            return loss
        opt.step(closure)
""",
    "a batch that a generator holds back": """
def ahead(batches):
    waiting = None
    for batch in batches:
        if waiting is not None:
            yield waiting
        waiting = batch
    yield waiting
for epoch in range(2):
    for x, y in ahead(loader):
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
""",
    "held-out rows, as many as a batch holds, between two optimizers": """
critic, held = nn.Linear(4, 1), torch.randn(8, 4)
second = torch.optim.Adam(critic.parameters())
for x, y in loader:
    opt.zero_grad()
    loss_of(x, y).backward()
    opt.step()
    with torch.no_grad():
        guess = net(held).argmax(1)
    second.zero_grad()
    critic(x).square().mean().backward()
    second.step()
""",
    "gradients that a hook changes, beside others": """
net[0].bias.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
for x, y in loader:
    opt.zero_grad()
    loss_of(x, y).backward()
    opt.step()
""",
    "dictionaries": """
loader = DataLoader([{"x": x, "y": y, "name": f"row {i}"} for i, (x, y) in enumerate(data)], batch_size=8, shuffle=True)
for batch in loader:
    opt.zero_grad()
    loss_of(batch["x"], batch["y"]).backward()
    opt.step()
""",
}
NOT_TRIED = {
    "another loader handed over a batch for the same step": """
others = DataLoader(data, batch_size=8, shuffle=True)
for (x, y), (z, _) in zip(loader, others):
    opt.zero_grad()
    (loss_of(x, y) + net(z).square().mean()).backward()
    opt.step()
""",
    "the step used a tensor of shape (8, 8) from before the batch": """
cell, state = nn.GRUCell(4, 8), torch.randn(8, 8)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
for x, y in loader:
    state = cell(x, state.detach())
    opt.zero_grad()
    state.square().mean().backward()
    opt.step()
""",
    "an optimizer stepped several times for one batch": """
for x, y in loader:
    for again in range(2):
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
""",
    "no operation before the step was given the batch that was handed over": """
def far_ahead(batches):
    waiting = []
    for batch in batches:
        waiting.append(batch)
        if len(waiting) > 2:
            yield waiting.pop(0)
for epoch in range(3):
    for x, y in far_ahead(DataLoader(data, batch_size=4, shuffle=True)):
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
""",
    "no loader handed over a third batch": """
for first in range(0, 32, 8):
    opt.zero_grad()
    loss_of(*data[first : first + 8]).backward()
    opt.step()
""",
    "the step takes a further batch, which worker processes hold": """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from zip(*data.tensors)
for epoch in range(3):
    for number, (x, y) in enumerate(DataLoader(Stream(), batch_size=8, num_workers=1)):
        (loss_of(x, y) / 2).backward()
        if number % 2:
            opt.step()
            opt.zero_grad()
""",
}


@pytest.mark.sliced(6)
@pytest.mark.parametrize("name", TRIED)
def test_relations_hold_in_right_programs(name):
    assert outcomes(TRIED[name]) == ({"held"}, [])


@pytest.mark.sliced(3)
@pytest.mark.parametrize("why", NOT_TRIED)
def test_what_cannot_be_judged_is_not_tried(why):
    told, findings = outcomes(NOT_TRIED[why])
    assert findings == []
    assert len(told) == 1
    assert told.pop().startswith(why)


EVALUATE = """
def evaluate():
    net.eval()
    with torch.no_grad():
        print(f"held-out loss {sum(loss_of(x, y) for x, y in test_loader) / len(test_loader):.4f}")
    net.train()
"""
WITH_GRADIENTS = EVALUATE.replace("with torch.no_grad():", "if True:")
BETWEEN_EVALUATIONS = {
    "an accumulation over an epoch": """
    for x, y in loader:
        (loss_of(x, y) / len(loader)).backward()
    opt.step()
    opt.zero_grad()
""",
    "an epoch of one batch": """
    for x, y in DataLoader(data, batch_size=32):
        opt.zero_grad()
        loss_of(x, y).backward()
        opt.step()
""",
}
# an evaluation's batches come last, and say nothing of the training
WHY_NOT = {
    "two loaders for each step": (
        "several loaders hand over batches for one step",
        """
    for (x, y), (z,) in zip(loader, others):
        opt.zero_grad()
        loss_of(x, y).backward()
        net(z).square().mean().backward()
        opt.step()
""",
    ),
    "two loaders for each step, one behind the other": (
        "several loaders hand over batches for one step",
        """
    for x, y in loader:
        loss_of(x, y).backward()
    for (z,) in others:
        net(z).square().mean().backward()
    opt.step()
    opt.zero_grad()
""",
    ),
    "gradients by hand": (
        "gradients come from no backward()",
        """
    for x, y in loader:
        for each, gradient in zip(net.parameters(), torch.autograd.grad(loss_of(x, y), [*net.parameters()])):
            each.grad = gradient
        opt.step()
""",
    ),
    "a step that is a run's own": (
        "a ts.Run trains here, whose updates are not tried out; ts.relations(loss, batch, trains=net) tries the loss",
        """
    from truestep.instrument.step_listeners import step_optimizer
    for x, y in loader:
        for each, gradient in zip(net.parameters(), torch.autograd.grad(loss_of(x, y), [*net.parameters()])):
            each.grad = gradient
        step_optimizer(opt)
""",
    ),
    "a penalty's backward before each batch": (
        "a backward came between the last step and the batch",
        """
    for x, y in loader:
        loss_of(x, y).backward()
        opt.step()
        opt.zero_grad()
        net[0].weight.square().sum().backward()
""",
    ),
}


@pytest.mark.sliced(2)
@pytest.mark.parametrize("evaluate", [EVALUATE, WITH_GRADIENTS], ids=["without gradients", "with gradients"])
@pytest.mark.parametrize("name", BETWEEN_EVALUATIONS)
def test_an_evaluation_between_steps_is_no_part_of_one(name, evaluate):
    code = evaluate + f"for epoch in range(5):{BETWEEN_EVALUATIONS[name]}    evaluate()\n"
    assert outcomes(code) == ({"held"}, [])


@pytest.mark.sliced(3)
@pytest.mark.parametrize("evaluate", [EVALUATE, WITH_GRADIENTS], ids=["without gradients", "with gradients"])
@pytest.mark.parametrize("name", WHY_NOT)
def test_the_reason_is_that_of_the_training(name, evaluate):
    why, loop = WHY_NOT[name]
    others = "others = DataLoader(TensorDataset(data.tensors[0] + 0), batch_size=8)\n"
    assert outcomes(evaluate + others + f"for epoch in range(5):{loop}    evaluate()\n") == ({why}, [])


@pytest.mark.parametrize("evaluate", [EVALUATE, WITH_GRADIENTS], ids=["without gradients", "with gradients"])
def test_a_pass_behind_an_evaluation_is_the_first_of_an_epoch(evaluate):
    code = """
for epoch in range(4):
    total = 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"epoch {epoch} training loss {total / len(data):.6f}")
    evaluate()
"""
    watch = watched(PLAIN + evaluate + code, ("REL014",))
    assert [each.code for each in watch.findings] == ["REL014"]


def test_several_steps_behind_a_batch_hide_no_reason_of_its_loader():
    code = """
probes = nn.ModuleList(nn.Linear(3, 1) for _ in range(3))
steps = [torch.optim.SGD(each.parameters(), lr=0.1) for each in probes]
others = DataLoader(TensorDataset(data.tensors[0] + 0), batch_size=8)
for epoch in range(3):
    for (x, y), (z,) in zip(loader, others):
        opt.zero_grad()
        (loss_of(x, y) + net(z).square().mean()).backward()
        opt.step()
        hidden = net(x).detach()
        for probe, step in zip(probes, steps):
            step.zero_grad()
            probe(hidden).square().mean().backward()
            step.step()
"""
    assert outcomes(code) == ({"several loaders hand over batches for one step"}, [])


SHAPES = """
head = nn.Linear(4, 1)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
for x, y in loader:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (head(x)SQUEEZED - y.float()).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(("squeezed", "outcome"), [("", "broken"), (".squeeze(1)", "held")])
def test_shapes_that_are_spread_are_found_behind_half_precision(squeezed, outcome):
    watch = watched(SHAPES.replace("SQUEEZED", squeezed), ("REL002",))
    assert watch.experiments.outcome("REL002") == (outcome, None)
    assert [(each.severity, each.place.line) for each in watch.findings] == [(RISK, 6)] * (
        outcome == "broken"
    )


PIECES = {
    "pieces": ("labels[first : first + 4]", []),
    "copies of pieces": ("labels[torch.arange(first, first + 4)].float().mul(2)", ["REL004"]),
    "another form": ("labels.view(-1, 1)[first : first + 4].t()", []),
}


@pytest.mark.parametrize("name", PIECES)
def test_what_is_only_cut_to_pieces_is_no_item_that_a_step_computes_with(name):
    piece, codes = PIECES[name]
    code = f"""
for x, labels in loader:
    opt.zero_grad()
    for first in range(0, len(x), 4):
        piece = x[first : first + 4], {piece}
        (net(piece[0]).square().mean() / 2).backward()
    opt.step()
"""
    assert [each.code for each in watched(code, ("REL004",)).findings] == codes


def test_an_item_that_another_optimizers_batch_needs_is_not_missed():
    code = """
critic = nn.Linear(4, 2)
second = torch.optim.Adam(critic.parameters())
for number, (x, y) in enumerate(loader):
    labels = y + 0
    if number % 2:
        opt.zero_grad()
        loss_of(x, labels).backward()
        opt.step()
    else:
        second.zero_grad()
        critic(x).square().mean().backward()
        second.step()
"""
    watch = watched(PLAIN + code, ("REL004",))
    assert watch.findings == []
    assert watch.experiments.why_not_tried("REL004").startswith("another optimizer steps at other batches")


HELD_BACK = """
def ahead(batches):
    waiting = None
    for batch in batches:
        if waiting is not None:
            yield waiting
        waiting = batch
for epoch in range(4):
    for number, (x, y) in enumerate(ahead(loader), START):
        (loss_of(x, y) / 2).backward()
        if number % 2:
            opt.step()
            opt.zero_grad()
"""


@pytest.mark.parametrize("start", ["0", "1"])
def test_an_accumulation_over_batches_that_are_held_back_begins_with_the_one_that_is_used(start):
    watch = watched(PLAIN + HELD_BACK.replace("START", start), ("REL007",))
    assert watch.findings == []


TWO_OPTIMIZERS = """
critic = nn.Linear(3, 1)
second = torch.optim.Adam(critic.parameters())
for x, y in loader:
    BEFORE
    critic(net(x).detach()).square().mean().backward()
    second.step()
    opt.zero_grad()
    (loss_of(x, y) - critic(net(x)).mean()).backward()
    opt.step()
"""


@pytest.mark.parametrize(("before", "outcome"), [("second.zero_grad()", "held"), ("pass", "broken")])
def test_gradients_that_another_optimizers_step_left_are_seen_where_both_step_for_each_batch(before, outcome):
    watch = watched(PLAIN + TWO_OPTIMIZERS.replace("BEFORE", before), ("REL007",))
    assert watch.experiments.records["REL007"].outcome == outcome


def test_a_batch_of_one_is_padded_for_its_example_alone():
    watch = watched(
        """
def collate(rows):
    lengths = [len(each) for each in rows]
    return nn.utils.rnn.pad_sequence(rows, True), torch.tensor(lengths)
loader = DataLoader([torch.randn(2 + i % 5, 4) for i in range(32)], batch_size=8, shuffle=True, collate_fn=collate)
for x, lengths in loader:
    mask = torch.arange(lengths.max())[None] < lengths[:, None]
    opt.zero_grad()
    ((net(x).sum(2) * mask).sum() / mask.sum()).backward()
    opt.step()
""",
        ("REL006",),
    )
    assert watch.findings == []
    assert watch.experiments.records["REL006"].outcome == "held"


@pytest.mark.parametrize(
    ("shaped", "is_told"), [("x.view(8, 2, 2).flatten(1)", True), ("x * (3 / (len(x) - 1))", False)]
)
def test_a_size_that_is_written_out_is_named_where_a_batch_of_one_fails(shaped, is_told):
    code = f"for x, y in loader:\n    opt.zero_grad()\n    F.cross_entropy(net({shaped}), y).backward()\n    opt.step()\n"
    (found,) = watched(code, ("REL006",)).findings
    assert ("Is the size of the other batches, 8, written out" in found.message) is is_told


EVALUATIONS = {
    "that counts its batches": """
net.eval()
total, batches = 0.0, iter(test_loader)
with torch.no_grad():
    for number in range(len(test_loader)):
        x, y = next(batches)
        total += F.cross_entropy(net(x), y, reduction="sum").item()
print(f"loss {total / 16:.4f}")
""",
    "with gradients off within its loop alone": """
net.eval()
total = 0.0
for x, y in test_loader:
    with torch.no_grad():
        total += F.cross_entropy(net(x), y, reduction="sum").item()
print(f"loss {total / 16:.4f}")
""",
    "of a smaller last batch whose place is known": """
net.eval()
found = torch.zeros(20)
with torch.no_grad():
    for number, (x, y) in enumerate(DataLoader(TensorDataset(torch.randn(20, 4), torch.arange(20) % 3), batch_size=8)):
        found[8 * number : 8 * number + len(y)] = F.cross_entropy(net(x), y, reduction="none")
print(f"loss {found.mean().item():.4f}")
""",
    "behind which a number is drawn": """
net.eval()
total = 0.0
with torch.no_grad():
    for x, y in test_loader:
        total += F.cross_entropy(net(x), y, reduction="sum").item()
print(f"loss {total / 16:.4f}")
print(f"drawn {torch.rand(()).item():.4f}")
""",
}
STEPS = """
for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
"""


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", EVALUATIONS)
def test_relations_of_an_evaluation_hold(name):
    watch = watched(STEPS + EVALUATIONS[name], ("REL009",))
    assert watch.findings == []
    assert {each.outcome for each in watch.experiments.records.values()} == {"held"}


def test_an_evaluation_that_draws_noise_for_each_batch_knows_an_order():
    code = """
net.eval()
total, stream = 0.0, torch.Generator().manual_seed(1)
with torch.no_grad():
    for x, y in test_loader:
        total += F.cross_entropy(net(x + torch.randn(x.shape, generator=stream)), y, reduction="sum").item()
print(f"loss {total / 16:.4f}")
"""
    watch = watched(STEPS + code, ("REL008", "REL009"))
    assert watch.findings == []
    assert watch.experiments.why_not_tried(
        "REL009",
    ).startswith("the evaluation draws random numbers")


def test_an_end_of_the_script_within_a_child_ends_the_child_alone():
    told, findings = outcomes("""
for number, (x, y) in enumerate(loader):
    opt.zero_grad()
    loss_of(x, y).backward()
    if number == 2:
        break
    opt.step()
""")
    assert (told, findings) == ({"no optimizer stepped before the script was over"}, [])


EPOCHS = {
    "sums over a batch": ("F.cross_entropy(net(x), y, reduction='sum')", "value.item()", "len(data)"),
    "means by size": ("F.cross_entropy(net(x), y)", "value.item() * len(y)", "len(data)"),
    "means": ("F.cross_entropy(net(x), y)", "float(value)", "len(loader)"),
}
WRONG_EPOCHS = {
    "means over the number of examples": ("F.cross_entropy(net(x), y)", "value.item()", "len(data)"),
    "means by size over the number of batches": (
        "F.cross_entropy(net(x), y)",
        "value.item() * len(y)",
        "len(loader)",
    ),
}


def epoch_watched(loss, part, count):
    return watched(
        f"""
drop = nn.Dropout(0.2)
for epoch in range(2):
    total = 0.0
    for x, y in loader:
        value = {loss.replace("net(x)", "net(drop(x))")}
        opt.zero_grad()
        (value / 8).backward()
        opt.step()
        total += {part}
    print(f"average loss {{total / {count}:.5f}}")
""",
        ("REL014",),
    )


@pytest.mark.parametrize("name", EPOCHS)
def test_what_is_printed_behind_an_epoch_may_be_any_mean(name):
    watch = epoch_watched(*EPOCHS[name])
    assert watch.findings == []
    assert watch.experiments.records["REL014"].outcome == "held"


@pytest.mark.parametrize("name", WRONG_EPOCHS)
def test_a_count_of_something_else_is_named_with_the_mean(name):
    watch = epoch_watched(*WRONG_EPOCHS[name])
    (found,) = watch.findings
    assert found.evidence["expected"] == pytest.approx(1.1, abs=0.3)


def test_a_board_whose_queue_is_full_holds_no_child_up(tmp_path):
    code = f"""
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter({str(tmp_path)!r}, max_queue=2)
for epoch in range(2):
    total = 0.0
    for number, (x, y) in enumerate(loader):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        for repeated in range(4):
            writer.add_histogram(f"weights {{repeated}}", net[0].weight, number)
        writer.flush()
        opt.step()
        total += loss.item()
    writer.add_scalar("mean loss", total / len(loader), epoch)
writer.close()
"""
    records = watched(code, ("REL006", "REL014")).experiments.records
    assert [each.outcome for each in records.values()] == ["held", "held"], records


@pytest.mark.sliced(2)
@pytest.mark.parametrize(
    "loss",
    [
        "values[values > 1e9].sum()",
        "(values - 1e9).clamp(min=0).mean()",
        "torch.where(values > 1e9, values, 0 * values).mean()",
        "(values * (values > 1e9)).sum() / (values > 1e9).sum().clamp(min=1)",
    ],
)
def test_a_batch_without_a_gradient_says_nothing_of_its_items(loss):
    code = f"""
for x, y in loader:
    opt.zero_grad()
    values = F.cross_entropy(net(x), y, reduction="none")
    ({loss}).backward()
    opt.step()
"""
    watch = watched(PLAIN + code, ("REL004",))
    assert watch.findings == []
    assert watch.experiments.why_not_tried("REL004") == "the batch gives no gradient: all of it is zero"


TOGETHER = """
held = DataLoader(TensorDataset(*(each[:24] for each in data.tensors)), batch_size=8, num_workers=WORKERS)
for epoch in range(3):
    total, count, away = 0.0, 0, 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        opt.step()
        total += loss.item()
        count += len(x)
    net.eval()
    with torch.no_grad():
        for x, y in held:
            away += loss_of(x, y).item()
    net.train()
    print(PRINTED)
"""
PRINTED = {
    "one line": ('f"epoch {epoch} train {total / len(loader):.5f} held {away / len(held):.5f}"', "held"),
    "a dict": ('{"train": total / len(loader), "held": away / len(held)}', "held"),
    "several words": ('"train", total / len(loader), "held", away / len(held)', "held"),
    "held first": ('f"held {away / len(held):.5f} train {total / len(loader):.5f}"', "held"),
    "the held one alone": ('f"{away / len(held):.5f}"', "not applicable"),
    "counts": ('f"epoch {epoch} of {count} examples"', "not applicable"),
    "by examples": ('f"epoch {epoch} train {total / len(data):.5f} held {away / len(held):.5f}"', "broken"),
    "by a count": ('{"train": total / count, "held": away / len(held)}', "broken"),
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", PRINTED)
def test_figures_of_an_epoch_and_its_evaluation_may_be_printed_together(name):
    printed, outcome = PRINTED[name]
    code = TOGETHER.replace("PRINTED", printed).replace("WORKERS", "0")
    assert watched(PLAIN + code, ("REL014",)).experiments.records["REL014"].outcome == outcome


def test_a_loader_says_how_many_examples_a_list_holds():
    code = """
class Pairs(list):
    def column(self, number):
        return torch.stack([each[number] for each in self])
pairs = [(x, y) for x, y in zip(*data.tensors)]
for batch in DataLoader(pairs, batch_size=8, collate_fn=Pairs):
    opt.zero_grad()
    loss_of(batch.column(0), batch.column(1)).backward()
    opt.step()
"""
    assert outcomes(code) == ({"held"}, [])


def test_all_options_without_effect_are_told_at_one_line():
    code = """
class Idle(nn.Module):
    def __init__(self, scale=0.5, ignore_index=7):
        super().__init__()
        self.scale, self.ignore_index = scale, ignore_index
    def forward(self, logits, y):
        return F.cross_entropy(logits, y)
criterion = Idle()
for x, y in loader:
    opt.zero_grad()
    criterion(net(x), y).backward()
    opt.step()
"""
    (found,) = watched(code, ("REL013",)).findings
    assert found.evidence["options"] == ["scale", "ignore_index"]


WORKER = """
import copy
worker, slow = copy.deepcopy(net), copy.deepcopy(net)  # whose layers have the same names
for x, y in loader:
    CLEARED
    with torch.no_grad():
        slow(x)
    for step in range(2):  # gradients of each are read, as for a trust region
        F.cross_entropy(worker(x), y).backward(retain_graph=True)
        noted = [each.grad.clone() for each in worker.parameters()]
        worker.zero_grad()
        (F.cross_entropy(worker(x), y) + sum((a * b).sum() for a, b in zip(noted, worker.parameters()))).backward()
        BETWEEN
    for mine, its in zip(net.parameters(), worker.parameters()):
        mine.grad = its.grad
    opt.step()
"""


@pytest.mark.parametrize(
    ("cleared", "between", "outcome"),
    [("worker.zero_grad()", "worker.zero_grad() if step == 0 else None", "held"), ("pass", "pass", "broken")],
)
def test_gradients_that_a_worker_left_are_told_where_they_are_read(cleared, between, outcome):
    code = WORKER.replace("CLEARED", cleared).replace("BETWEEN", between)
    watch = watched(PLAIN + code, ("REL007",))
    assert watch.experiments.records["REL007"].outcome == outcome


COUNTED = """
for epoch in range(3):
    batches, total = iter(loader), 0.0
    for number in range(len(loader)):  # which asks for no batch behind the last
        x, y = next(batches)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
        total += loss.item()
    print(f"mean {total / DIVISOR:.5f}")
"""


@pytest.mark.parametrize(("divisor", "outcome"), [("len(loader)", "held"), ("len(data)", "broken")])
def test_an_epoch_whose_batches_are_counted_is_whole_at_the_last(divisor, outcome):
    watch = watched(PLAIN + COUNTED.replace("DIVISOR", divisor), ("REL014",))
    assert watch.experiments.outcome("REL014") == (outcome, None)


def test_an_epoch_that_is_left_before_its_last_batch_says_so():
    code = COUNTED.replace("range(len(loader))", "range(2)").replace("DIVISOR", "2")
    reason = "the script left the epoch before its loader had no further batch"
    assert watched(PLAIN + code, ("REL014",)).experiments.outcome("REL014") == ("not tried", reason)
