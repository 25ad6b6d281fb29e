# SPDX-License-Identifier: Apache-2.0
"""Batches that no loader hands over: tensors in memory that a step computes its loss from."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
CODES = ("REL002", "REL003", "REL007")
STEP = """
def step(x, y):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
X, Y = torch.randn(24, 4), torch.arange(24) % 3
"""
HELD = {
    "all data at once": """
weight = torch.tensor([1.0, 2.0, 3.0])
for epoch in range(6):
    opt.zero_grad()
    F.cross_entropy(net(X), Y, weight=weight).backward()
    opt.step()
""",
    "with an evaluation of more rows between": """
X_test, Y_test = torch.randn(90, 4), torch.arange(90) % 3
for epoch in range(6):
    step(X, Y)
    with torch.no_grad():
        print(F.cross_entropy(net(X_test), Y_test).item())
""",
    "a list of batches": """
batches = [(torch.randn(6, 4), torch.arange(6) % 3) for _ in range(8)]
for x, y in batches:
    step(x, y)
""",
    "a list that a loader filled": """
for x, y in list(loader) * 2:
    step(x, y)
""",
    "a closure": """
opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
for epoch in range(6):
    def closure():
        opt.zero_grad()
        loss = F.cross_entropy(net(X), Y)
        loss.backward()
        return loss
    opt.step(closure)
""",
    "one of a list by chance": """
import random
batches = [{"x": torch.randn(6, 4), "y": torch.arange(6) % 3} for _ in range(8)]
for number in range(8):
    batch = random.choice(batches)
    step(batch["x"], batch["y"])
""",
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", HELD)
def test_relations_are_tried_with_a_batch_in_memory(name):
    watch = watched(STEP + HELD[name], CODES)
    assert watch.findings == []
    assert {code: watch.experiments.outcome(code) for code in CODES} == dict.fromkeys(CODES, ("held", None))


def test_sides_of_two_shapes_are_found():
    code = """
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
target = X.sum(1)
for epoch in range(6):
    opt.zero_grad()
    ((net(X) - target) ** 2).mean().backward()  # here
    opt.step()
"""
    watch = watched(STEP + code, ("REL002", "REL004"))
    line = next(number for number, each in enumerate((STEP + code).splitlines(), 1) if "# here" in each)
    assert [(each.code, each.place.line, each.severity.name) for each in watch.findings] == [
        ("REL002", line, "RISK")
    ]


def test_an_item_without_effect_is_found_by_its_name():
    code = """
weights = torch.rand(24)
for epoch in range(6):
    opt.zero_grad()
    loss = F.cross_entropy(net(X), Y, reduction="none")
    weighted = loss * weights
    loss.mean().backward()
    opt.step()
"""
    watch = watched(STEP + code, ("REL004",))
    assert [each.message.split(" has")[0] for each in watch.findings] == ["item ['weights'] of the batch"]


MEETING = {
    "a graph by its edges": """
edges = torch.randint(24, (2, 60))
def mixed(x):
    return torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
""",
    "a graph by its matrix": """
matrix = (torch.rand(24, 24) < 0.2).float()
def mixed(x):
    return matrix @ x
""",
    "one long sequence": """
def mixed(x):
    return x + torch.cat([x[1:], x[:1]])
""",
    "attention of nodes": """
def mixed(x):
    return torch.softmax(x @ x.T, 1) @ x
""",
}


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", MEETING)
def test_rows_that_meet_are_not_accused_where_no_loader_says_that_they_are_examples(name):
    code = """
for epoch in range(6):
    opt.zero_grad()
    F.cross_entropy(net(mixed(X)), Y).backward()
    opt.step()
"""
    watch = watched(STEP + MEETING[name] + code, (*CODES, "REL004", "REL006"))
    assert watch.findings == []


CUT = {
    "by slices": "x, y = X[first : first + 6], Y[first : first + 6]",
    "by drawn rows": "rows = torch.randperm(24)[:6]\n    x, y = X[rows], Y[rows]",
    "by rows of numpy's": "import numpy as np\n    rows = np.random.permutation(24)[:6]\n    x, y = X[rows], Y[rows]",
    "by a list": "import random\n    rows = random.sample(range(24), 6)\n    x, y = X[rows], Y[rows]",
    "made in the step": "x, y = torch.randn(6, 4), torch.arange(6) % 3",
}


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", CUT)
def test_a_batch_that_is_made_in_the_step_is_not_tried(name):
    watch = watched(f"{STEP}\nfor first in range(0, 24, 6):\n    {CUT[name]}\n    step(x, y)\n", CODES)
    assert watch.findings == []
    assert {watch.experiments.outcome(each)[0] for each in CODES} == {"not tried"}
    assert watch.experiments.why_not_tried("REL002").startswith("no loader handed over a third batch")


def test_the_training_goes_on_with_its_own_values():
    code = (
        STEP
        + "for epoch in range(6):\n    step(X, Y)\nprint(sum(each.sum().item() for each in net.parameters()))"
    )
    import contextlib
    import io

    printed = []
    for codes in (CODES, ("GRAD001",)):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            watched(code, codes)
        printed.append(output.getvalue())
    assert printed[0] == printed[1] != ""


def test_a_figure_of_the_step_before_is_no_batch():
    watch = watched(
        """
for number in range(30):
    x = torch.randn(32, 4)
    chosen = torch.distributions.Categorical(logits=net(x))
    action = chosen.sample()
    reward = (action == (x[:, 0] > 0).long()).float()
    opt.zero_grad()
    (-chosen.log_prob(action) * (reward - reward.mean())).mean().backward()
    opt.step()
    shown = reward.mean().item()
""",
        ("REL003",),
    )
    assert watch.findings == []
    assert watch.experiments.why_not_tried("REL003").startswith("the script makes the batch in its step")
