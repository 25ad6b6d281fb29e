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


def outcome(code):
    return watched(code, ("REL003",)).experiments.outcome("REL003")


@pytest.mark.parametrize("case", KEPT)
def test_a_count_over_the_window_is_a_mean(case):
    size, count, options = KEPT[case]
    assert outcome(WINDOW.format(size=size, count=count, options=options)) == ("held", None)


@pytest.mark.parametrize("case", ASKED)
def test_sums_are_asked_about(case):
    size, count, options = ASKED[case]
    assert outcome(WINDOW.format(size=size, count=count, options=options))[0] == "broken"


@pytest.mark.parametrize("count", ["len(rows)", "torch.tensor(float(len(rows)))", "torch.tensor(len(rows))"])
def test_a_count_beside_the_batch_is_told(count):
    found, why = outcome(BESIDE.format(count=count))
    assert found == "not tried"
    assert "number beside its rows" in why


def test_a_switch_beside_the_batch_is_no_count():
    assert outcome(BESIDE.format(count="True"))[0] == "broken"
