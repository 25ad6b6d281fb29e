# SPDX-License-Identifier: Apache-2.0
"""Figures that are printed within an epoch: means of all usual kinds are silent, wrong counts and divided losses are not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
TRAINING = """
big = DataLoader(TensorDataset(torch.randn(192, 4), torch.arange(192) % 3), batch_size=8, shuffle=True)
for epoch in range(2):
    total, count = 0.0, 0
    for number, (x, y) in enumerate(big):
        loss = F.cross_entropy(net(x), y)
        {step}
        {figure}
"""
STEP = "opt.zero_grad(); loss.backward(); opt.step()"
ACCUMULATING = "loss = loss / 4; loss.backward(); number % 4 == 3 and (opt.step(), opt.zero_grad())"


def at_each_tenth(figure):
    return f"if number % 10 == 9: print(f'loss {{{figure}:.5f}}')"


MEANS = {
    "the last one": (STEP, at_each_tenth("loss.item()")),
    "the mean so far": (STEP, "total += loss.item(); " + at_each_tenth("total / (number + 1)")),
    "by examples": (
        STEP,
        "total += loss.item() * len(y); count += len(y); " + at_each_tenth("total / count"),
    ),
    "of the last ten": (STEP, "total += loss.item(); " + at_each_tenth("total / 10") + "; total = 0.0"),
    "a running one": (STEP, "total = 0.9 * total + 0.1 * loss.item(); " + at_each_tenth("total")),
    "a sum": (STEP, "total += loss.item(); " + at_each_tenth("total")),
    "a rate of right ones": (
        STEP,
        "total += (net(x).argmax(1) == y).sum().item(); count += len(y); " + at_each_tenth("total / count"),
    ),
    "scaled back": (ACCUMULATING, "value = loss.item(); " + at_each_tenth("value * 4")),
    "a window's sum": (
        ACCUMULATING,
        "total += loss.item()\nif number % 4 == 3: print(f'loss {total:.5f}'); total = 0.0",
    ),
    "before it is divided": (f"value = loss.item(); {ACCUMULATING}", at_each_tenth("value")),
    "sums of batches": (STEP, "total += loss.item() * len(y); " + at_each_tenth("total")),
}
WRONG = {
    "by examples so far": (STEP, "total += loss.item(); count += len(y); " + at_each_tenth("total / count")),
    "by examples since": (
        STEP,
        "total += loss.item(); count += len(y); " + at_each_tenth("total / count") + "; total = count = 0",
    ),
    "sums by batches": (STEP, "total += loss.item() * len(y); " + at_each_tenth("total / (number + 1)")),
    "divided": (ACCUMULATING, at_each_tenth("loss.item()")),
    "divided, read each time": (ACCUMULATING, "value = loss.item(); " + at_each_tenth("value")),
}


def found(step, figure):
    figure = figure.replace("; if ", "\nif ").replace("\n", "\n" + 8 * " ")
    watch = watched(TRAINING.format(step=step, figure=figure), ("REL014",))
    return [each.message for each in watch.findings]


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", MEANS)
def test_means_are_silent(name):
    assert found(*MEANS[name]) == []


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_counts_are_told(name):
    (message,) = found(*WRONG[name])
    assert message.startswith("within an epoch")
