# SPDX-License-Identifier: Apache-2.0
"""Evaluations that go over their loader several times: each pass gets the same change, so that what is compared by place fits."""

import pytest
from doctor.experiments.test_places import STEPS
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
RIGHT = {
    "for each label, compared by place": """
net.eval()
with torch.no_grad():
    scores = []
    for label in range(3):
        scores.append(torch.cat([net(x)[:, label] for x, y in test_loader]))
    truth = torch.cat([y for _, y in test_loader])
    hits = (torch.stack(scores, 1).argmax(1) == truth).float()
    print(f"accuracy {hits.mean().item():.4f} {torch.stack(scores, 1).logsumexp(1).mean().item():.4f}")
""",
    "predictions first, labels in a second pass": """
net.eval()
with torch.no_grad():
    out = torch.cat([net(x) for x, y in test_loader])
    truth = torch.cat([y for x, y in test_loader])
print(f"loss {F.cross_entropy(out, truth).item():.4f}")
""",
    "samples several times, averaged": """
net.eval()
with torch.no_grad():
    votes = sum(torch.cat([net(x).softmax(1) for x, _ in test_loader]) for _ in range(3)) / 3
    truth = torch.cat([y for _, y in test_loader])
print(f"brier {(votes - F.one_hot(truth, 3)).square().mean().item():.4f}")
""",
    "two networks by place": """
other = nn.Linear(4, 3)
net.eval(); other.eval()
def outputs(model):
    found = []
    for x, y in test_loader:
        with torch.no_grad():
            found.append(model(x))
    return torch.cat(found)
print(f"agreement {F.l1_loss(outputs(net), outputs(other)).item():.4f}")
""",
    "statistics first, then the figure": """
net.eval()
with torch.no_grad():
    total, count = 0.0, 0
    for x, y in test_loader:
        total += net(x).sum(0); count += len(x)
    mean = total / count
    spread = sum((net(x) - mean).square().sum() for x, y in test_loader) / count
print(f"spread {spread.item():.4f}")
""",
    "printed after each pass": """
net.eval()
for label in range(3):
    total = 0.0
    with torch.no_grad():
        for x, y in test_loader:
            total += F.cross_entropy(net(x), torch.full_like(y, label), reduction="sum").item()
    print(f"label {label}: {total / 16:.4f}")
""",
    "printed in and after each pass": """
net.eval()
for label in range(3):
    total = 0.0
    with torch.no_grad():
        for x, y in test_loader:
            now = F.cross_entropy(net(x), torch.full_like(y, label), reduction="sum").item()
            print(f"batch {now:.5f}")
            total += now
    print(f"label {label}: {total / 16:.4f}")
""",
    "kept list of first pass with zip": """
net.eval()
with torch.no_grad():
    kept = [net(x) for x, y in test_loader]
    total = 0.0
    for out, (x, y) in zip(kept, test_loader):
        total += F.cross_entropy(out, y, reduction="sum").item()
print(f"loss {total / 16:.4f}")
""",
    "zip twice": """
net.eval()
total = 0.0
with torch.no_grad():
    for (x, y), (a, b) in zip(test_loader, test_loader):
        total += (net(x) - net(a)).square().sum().item() + F.cross_entropy(net(x), b, reduction="sum").item()
print(f"loss {total / 16:.4f}")
""",
}
FAULTY = {
    "last batch, second pass": """
net.eval()
with torch.no_grad():
    all = torch.cat([net(x) for x, y in test_loader])
    for x, y in test_loader:
        loss = F.cross_entropy(net(x), y).item()
print(f"loss {loss:.4f} {all.square().mean().item():.4f}")
""",
    "first batch for all": """
net.eval()
with torch.no_grad():
    for label in range(3):
        losses = [F.cross_entropy(net(x), torch.full_like(y, label)).item() for x, y in test_loader]
        print(f"label {label} {losses[0]:.4f}")
""",
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", RIGHT)
def test_relations_hold_where_passes_are_compared_by_place(name):
    watch = watched(STEPS + RIGHT[name], ("REL008", "REL009"))
    assert watch.findings == []
    assert {each.outcome for each in watch.experiments.records.values()} == {"held"}


@pytest.mark.parametrize("name", FAULTY)
def test_a_figure_of_one_batch_of_a_later_pass_is_found(name):
    assert [each.code for each in watched(STEPS + FAULTY[name], ("REL009",)).findings] == ["REL009"]
