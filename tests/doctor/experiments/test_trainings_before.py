# SPDX-License-Identifier: Apache-2.0
"""A short training comes before the one that matters: relations are tried in the second one, too, and what it breaks is found."""

import itertools

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
CODES = ("REL002", "REL003", "REL007", "REL011", "REL012")
BEFORE = {
    "folds whose optimizers are gone": """
def error_of(kept):
    small = nn.Linear(4, 1)
    descent = torch.optim.SGD(small.parameters(), lr=0.05)
    for piece in kept.split(4):
        descent.zero_grad()
        small(piece).square().mean().backward()
        descent.step()
for fold in range(3):
    error_of(torch.randn(8, 4))
""",
    "folds over loaders, each with a schedule": """
for fold in range(2):
    small = nn.Linear(4, 3)
    descent = torch.optim.SGD(small.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(descent, 1)
    for x, y in DataLoader(data, batch_size=len(data) // 2):
        descent.zero_grad()
        F.cross_entropy(small(x), y).backward()
        descent.step()
        schedule.step()
""",
    "an attempt that fails": """
for attempt in range(2):
    try:
        small = nn.Linear(4, 3)
        descent = torch.optim.SGD(small.parameters(), lr=0.05)
        for x, y in loader:
            descent.zero_grad()
            F.cross_entropy(small(x), y).backward()
            descent.step()
            raise RuntimeError("no luck")
    except RuntimeError:
        pass
""",
    "optimizers that are kept": """
probes = [nn.Linear(4, 1) for _ in range(2)]
descents = [torch.optim.SGD(each.parameters(), lr=0.05) for each in probes]
for probe, descent in zip(probes, descents):
    for piece in torch.randn(12, 4).split(4):
        descent.zero_grad()
        probe(piece).square().mean().backward()
        descent.step()
""",
}
MAIN = {
    "a loader": """
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        (F.cross_entropy(net(x), y) + 0.3 * sum(PART.square().sum() for each in net.parameters())).backward()
        opt.step()
""",
    "a memory": """
import random
memory = [(torch.randn(4), number % 3) for number in range(200)]
for _ in range(40):
    states, actions = zip(*random.sample(memory, 16))
    opt.zero_grad()
    loss = F.cross_entropy(net(torch.stack(states)), torch.tensor(actions))
    (loss + 0.3 * sum(PART.square().sum() for each in net.parameters())).backward()
    opt.step()
""",
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize(("before", "main"), list(itertools.product(BEFORE, MAIN)))
def test_what_the_second_training_breaks_is_found(before, main):
    code = BEFORE[before] + MAIN[main].replace("PART", "each.data")
    assert {each.code for each in watched(code, CODES).findings} == {"REL011"}


@pytest.mark.sliced(3)
@pytest.mark.parametrize(("before", "main"), list(itertools.product(BEFORE, MAIN)))
def test_a_right_second_training_is_tried(before, main):
    watch = watched(BEFORE[before] + MAIN[main].replace("PART", "each"), CODES)
    assert watch.findings == []
    assert {watch.experiments.outcome(code)[0] for code in ("REL011", "REL012")} == {"held"}
    if before == "folds whose optimizers are gone":
        assert watch.experiments.outcome("REL007") == ("held", None)
