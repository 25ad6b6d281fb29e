# SPDX-License-Identifier: Apache-2.0
"""Evaluations that leave their loader early: who divides by what was seen is silent, who divides by the loader's length is not."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
PROGRAM = """
held = DataLoader(TensorDataset(torch.randn(48, 4), torch.arange(48) % 3), batch_size=8)

def evaluate():
    total, count = 0.0, 0
    net.eval()
    with torch.no_grad():
        {before}
        for number, (x, y) in enumerate(held):
            loss = F.cross_entropy(net(x), y)
            {within}
        {behind}
    net.train()

for x, y in loader:
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
evaluate()
"""
ADDED, LEFT = "total += loss.item(); count += len(y)", "\nif number == 1:\n    break"
RIGHT = {
    "by the number seen": ("pass", ADDED + LEFT, "print(f'loss {total / (number + 1):.5f}')"),
    "by a number written": ("pass", ADDED + LEFT, "print(f'loss {total / 2:.5f}')"),
    "by the examples seen": (
        "pass",
        "total += loss.item() * len(y); count += len(y)" + LEFT,
        "print(f'loss {total / count:.5f}')",
    ),
    "the smaller number": (
        "most = min(2, len(held))",
        ADDED + "\nif number + 1 == most:\n    break",
        "print(f'loss {total / most:.5f}')",
    ),
    "a share of the loader": (
        "most = len(held) // 3",
        ADDED + "\nif number + 1 == most:\n    break",
        "print(f'loss {total / most:.5f}')",
    ),
    "a sum": ("pass", ADDED + LEFT, "print(f'sum {total:.5f}')"),
    "what all would give": ("pass", ADDED + LEFT, "print(f'sum {total / 2 * len(held):.5f}')"),
    "the progress within": (
        "pass",
        ADDED + "\nprint(f'{number / len(held):.3f} done')" + LEFT,
        "print(f'loss {total / 2:.5f}')",
    ),
    "the progress behind": (
        "pass",
        ADDED + LEFT,
        "print(f'saw {2 / len(held):.4f}, loss {total / 2:.5f}')",
    ),
    "a first batch": ("pass", ADDED + "\nbreak", "print(f'loss {total:.5f}')"),
    "returned out of the loop": ("pass", ADDED + "\nprint(f'loss {loss.item():.5f}')\nreturn", "pass"),
    "all batches": ("pass", ADDED, "print(f'loss {total / len(held):.5f}')"),
}
WRONG = {
    "by all batches": ("pass", ADDED + LEFT, "print(f'loss {total / len(held):.5f}')"),
    "within the loop": ("pass", ADDED + "\nprint(f'loss {total / len(held):.5f}')\nreturn", "pass"),
    "a share of right ones": (
        "pass",
        "total += (net(x).argmax(1) == y).float().mean().item()" + LEFT,
        "print(f'accuracy {total / len(held):.5f}')",
    ),
}


def watch_of(*parts):
    before, within, behind = (each.replace("\n", "\n" + 12 * " ") for each in parts)
    return watched(PROGRAM.format(before=before, within=within, behind=behind), ("REL008",))


@pytest.mark.sliced(4)
@pytest.mark.parametrize("name", RIGHT)
def test_who_divides_by_what_was_seen_is_silent(name):
    watch = watch_of(*RIGHT[name])
    assert watch.failures == []
    assert watch.findings == []


@pytest.mark.parametrize("name", WRONG)
def test_a_sum_of_some_batches_by_the_number_of_all_is_told(name):
    (found,) = watch_of(*WRONG[name]).findings
    assert "it takes" in found.message
    assert "of 6 batches" in found.message
