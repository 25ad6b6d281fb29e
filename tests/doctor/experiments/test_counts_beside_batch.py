# SPDX-License-Identifier: Apache-2.0
"""Sums that are divided by a count: over a window of batches, or handed beside the batch; other sums are asked about."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
WINDOW = """
def windows(size):
    batches = iter(loader)
    while window := [batch for _, batch in zip(range(size), batches)]:
        yield window

for epoch in range(2):
    for window in windows({size}):
        count = {count}
        opt.zero_grad()
        for x, y in window:
            loss = F.cross_entropy(net(x), y, reduction="sum"{options}) / count
            loss.backward()
        opt.step()
"""
BESIDE = """
def collate(rows):
    x, y = torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])
    return {{"x": x, "y": y, "num_items": {count}}}

for epoch in range(2):
    for batch in DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate):
        opt.zero_grad()
        loss = F.cross_entropy(net(batch["x"]), batch["y"], reduction="sum") / batch["num_items"]
        loss.backward()
        opt.step()
"""
ROWS = "sum(len(y) for _, y in window)"
KEPT = {"two batches": (2, ROWS, ""), "four": (4, ROWS, "")}
KEPT["labels that count"] = (2, "sum((y != 0).sum() for _, y in window)", ", ignore_index=0")
KEPT["one batch"] = (1, ROWS, "")
ASKED = {
    "no count": (2, "1", ""),
    "a count of batches": (2, "len(window)", ""),
    "no count of one": (1, "1", ""),
}
ACCUMULATED = """
import numpy as np
ACCUM, WINDOW = 2, 16
whole, counted, params = torch.tensor(16.0), np.int64(16), list(net.parameters())
for epoch in range(2):
    seen = 0
    opt.zero_grad()
    for i, (x, y) in enumerate(loader, 1):
        seen += len(x)
        total = F.cross_entropy(net(x), y, reduction="sum")
        (LOSS).backward()
        if i % ACCUM == 0:
            BEFORE
            opt.step()
            opt.zero_grad()
            seen = 0
"""
DIVIDED = {
    "a product of sizes": ("total / (8 * ACCUM)", "pass"),
    "a tensor": ("total / whole", "pass"),
    "a share": ("(1 / WINDOW) * total", "pass"),
    "one size behind the other": ("total.div(loader.batch_size).div(ACCUM)", "pass"),
    "each row": ("(F.cross_entropy(net(x), y, reduction='none') / WINDOW).sum()", "pass"),
    "NumPy's number": ("total / counted", "pass"),
    "a share of the rows": ("total / len(x) * (len(x) / WINDOW)", "pass"),
    "all numbers": ("(net[0](x)[:, :4] - x).square().sum() / (8 * 4 * ACCUM)", "pass"),
    "gradients by what was seen": ("total", "for p in params: p.grad.div_(seen)"),
    "gradients by a constant": ("total", "for p in params: p.grad /= WINDOW"),
    "gradients past the graph": ("total", "for p in params: p.grad.data.mul_(1 / seen)"),
    "new gradients": ("total", "for p in params: p.grad = p.grad / seen"),
    "all gradients at once": ("total", "torch._foreach_div_([p.grad for p in params], WINDOW)"),
    "a step for each batch": ("total / loader.batch_size", "pass\n        if True:"),
    "means, and noise": ("F.cross_entropy(net(x + torch.randn_like(x)), y) / ACCUM", "pass"),
}
NOT_DIVIDED = {
    "nothing": ("total", "pass"),
    "batches": ("total / ACCUM", "pass"),
    "classes": ("total / 3", "pass"),
    "batches of an epoch": ("total / len(loader)", "pass"),
    "any number": ("total / 100", "pass"),
    "one of two terms": ("total / WINDOW + 0.1 * net(x).square().sum()", "pass"),
    "gradients by batches": ("total", "for p in params: p.grad /= ACCUM"),
    "a figure beside it": ("total + 0 * (x.sum() / 16)", "pass"),
}


def outcome(code):
    return watched(code, ("REL003",)).experiments.outcome("REL003")


@pytest.mark.sliced(2)
@pytest.mark.parametrize("case", KEPT)
def test_a_count_over_the_window_is_a_mean(case):
    size, count, options = KEPT[case]
    assert outcome(WINDOW.format(size=size, count=count, options=options)) == ("held", None)


@pytest.mark.parametrize("case", ASKED)
def test_sums_are_asked_about(case):
    size, count, options = ASKED[case]
    assert outcome(WINDOW.format(size=size, count=count, options=options))[0] == "broken"


@pytest.mark.parametrize("count", ["len(rows)", "torch.tensor(float(len(rows)))", "torch.tensor(len(rows))"])
def test_a_count_beside_the_batch_doubles_with_it(count):
    assert outcome(BESIDE.format(count=count)) == ("held", None)


def test_another_number_beside_the_batch_may_be_made_of_a_count():
    found, why = outcome(
        BESIDE.format(count="len(rows) + 1").replace('["num_items"]', '["num_items"].bit_length()')
    )
    assert found == "not tried"
    assert "number beside its rows" in why


def test_a_switch_beside_the_batch_is_no_count():
    assert outcome(BESIDE.format(count="True"))[0] == "broken"


@pytest.mark.sliced(4)
@pytest.mark.parametrize("case", DIVIDED)
def test_a_sum_that_is_divided_by_a_number_of_its_examples_is_a_mean(case):
    loss, before = DIVIDED[case]
    assert outcome(ACCUMULATED.replace("LOSS", loss).replace("BEFORE", before)) == ("held", None)


@pytest.mark.sliced(3)
@pytest.mark.parametrize("case", NOT_DIVIDED)
def test_a_sum_that_is_divided_by_something_else_is_asked_about(case):
    loss, before = NOT_DIVIDED[case]
    assert outcome(ACCUMULATED.replace("LOSS", loss).replace("BEFORE", before))[0] == "broken"


def test_the_factor_of_a_sum_is_told_also_in_an_accumulation():
    loss, before = NOT_DIVIDED["nothing"]
    (found,) = watched(ACCUMULATED.replace("LOSS", loss).replace("BEFORE", before), ("REL003",)).findings
    assert "2 times as large" in found.message
