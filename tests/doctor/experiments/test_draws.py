# SPDX-License-Identifier: Apache-2.0
"""Steps that draw masks, actions and noise for each example: no order and no size of the batch is asked of what draws decide."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
WORDS = """
import random
import numpy as np

net = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
words = DataLoader(TensorDataset(torch.randint(1, 16, (32, 10))), batch_size=8, shuffle=True)
def loss_of(tokens, mask):
    return F.cross_entropy(net(tokens.masked_fill(mask, 0))[mask], tokens[mask], reduction="REDUCTION")
for (tokens,) in words:
    opt.zero_grad()
    MASK
    loss.backward()
    opt.step()
"""
HELD = {
    "the largest of uniform numbers": """
    mask = torch.zeros(tokens.shape, dtype=torch.bool).scatter(1, torch.rand(tokens.shape).topk(3).indices, True)
    loss = loss_of(tokens, mask)""",
    "a share for each": """
    share = torch.zeros(len(tokens)).uniform_(0.2, 1)
    loss = loss_of(tokens, torch.rand(tokens.shape).argsort(-1) < (share * 10).round().clamp(min=1)[:, None])""",
    "a span from a random place on": """
    first, places = torch.randint(0, 7, (len(tokens), 1)), torch.arange(10)[None]
    loss = loss_of(tokens, (places >= first) & (places < first + 3))""",
    "a part of all tokens": """
    keep = torch.rand(tokens.numel()) < 0.5
    loss = F.cross_entropy(net(tokens).flatten(0, 1)[keep], tokens.flatten()[keep], reduction="REDUCTION")""",
    "a sampled token, scored": """
    chosen = torch.distributions.Categorical(logits=net(tokens)[:, 0])
    action = chosen.sample()
    loss = -(chosen.log_prob(action) * (action == tokens[:, 1]).float()).REDUCTION()""",
}
NOT_TRIED = {
    "numbers of Python's for each token": """
    mask = torch.tensor([[place == 0 or random.random() < 0.4 for place in range(10)] for _ in tokens])
    loss = loss_of(tokens, mask)""",
    "places that NumPy chooses for each row": """
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    for row in mask:
        row[torch.from_numpy(np.random.choice(10, 3, replace=False))] = True
    loss = loss_of(tokens, mask)""",
    "numbers of torch's for each row": """
    mask = torch.stack([torch.rand(10) < torch.rand(()) for _ in tokens]) | (torch.arange(10) == 0)
    loss = loss_of(tokens, mask)""",
    "as many classes as examples of a batch that stands twice": """
    logits = net(tokens).flatten(0, 1)
    noised = logits - torch.log(-torch.log(torch.zeros_like(logits).uniform_(0.01, 0.99)))
    loss = F.cross_entropy(logits, noised.argmax(1), reduction="REDUCTION")""",
    "noise of a fixed number of rows": """
    loss = F.cross_entropy(net(tokens)[:, 0], tokens[:, 1], reduction="REDUCTION")
    loss = loss + F.softplus(net[1](torch.randn(8, 8))).mean()""",
}


def outcomes(mask, reduction):
    code = WORDS.replace("    MASK", mask.strip("\n")).replace("REDUCTION", reduction)
    watch = watched(code, ("REL002", "REL003"))
    return {each: record.outcome for each, record in watch.experiments.records.items()}, watch.findings


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", HELD)
def test_relations_hold_where_each_example_has_the_same_noise(name):
    assert outcomes(HELD[name], "mean") == ({"REL002": "held", "REL003": "held"}, [])


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", HELD)
def test_a_sum_over_the_batch_is_asked_beside_noise(name):
    told, findings = outcomes(HELD[name], "sum")
    assert (told, [each.code for each in findings]) == ({"REL002": "held", "REL003": "broken"}, ["REL003"])


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", NOT_TRIED)
def test_noise_that_depends_on_the_place_is_no_question(name):
    told, findings = outcomes(NOT_TRIED[name], "mean")
    assert findings == []
    assert told["REL003"] == "not tried"
