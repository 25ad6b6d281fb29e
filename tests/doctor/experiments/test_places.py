# SPDX-License-Identifier: Apache-2.0
"""Where a batch is all that a step sees of the data, relations are tried; elsewhere the report says why they are not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
CODES = ("REL001", "REL002", "REL003")
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
def ahead(batches):
    waiting = None
    for batch in batches:
        if waiting is not None:
            yield waiting
        waiting = batch
    yield waiting
for x, y in ahead(loader):
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
for epoch in range(3):
    for number, (x, y) in enumerate(DataLoader(data, batch_size=8, num_workers=1)):
        (loss_of(x, y) / 2).backward()
        if number % 2:
            opt.step()
            opt.zero_grad()
""",
}


@pytest.mark.parametrize("name", TRIED)
def test_relations_hold_in_right_programs(name):
    assert outcomes(TRIED[name]) == ({"held"}, [])


@pytest.mark.parametrize("why", NOT_TRIED)
def test_what_cannot_be_judged_is_not_tried(why):
    told, findings = outcomes(NOT_TRIED[why])
    assert findings == []
    assert len(told) == 1
    assert told.pop().startswith(why)


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
