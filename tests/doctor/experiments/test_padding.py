# SPDX-License-Identifier: Apache-2.0
"""Padding that a mask leaves out changes no gradient, however it is left out; masks of other meanings are not judged."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
PRELUDE = """
lengths = torch.randint(2, 7, (64, 1))
lengths[::4] = 6
real = torch.arange(6) < lengths
tokens = torch.randint(1, 9, (64, 6)) * real
series = torch.randn(64, 6, 4)
classes = torch.randint(0, 3, (64,))
tags = torch.randint(0, 3, (64, 6)).masked_fill(~real, -100)
embed, out = nn.Embedding(9, 8), nn.Linear(8, 3)
attend = nn.MultiheadAttention(8, 2, batch_first=True)
project = nn.Linear(4, 8)
gru = nn.GRU(4, 8, batch_first=True)
pack = nn.utils.rnn.pack_padded_sequence
parts = [embed, out, attend, project, gru]
opt = torch.optim.SGD([each for part in parts for each in part.parameters()], lr=0.1)
def pooled(hidden, mask):
    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
"""
LOOP = """
for items in DataLoader(TensorDataset(ITEMS), batch_size=16):
    first, mask, y = items
    opt.zero_grad()
    (LOSS).backward()
    opt.step()
"""
RIGHT = {
    "attention and pooling": (
        "tokens, real, classes",
        "F.cross_entropy(out(pooled(attend(h := embed(first), h, h, key_padding_mask=~mask)[0], mask)), y)",
    ),
    "a mask of what is padded": (
        "tokens, ~real, classes",
        "F.cross_entropy(out(pooled(attend(h := embed(first), h, h, key_padding_mask=mask)[0], ~mask)), y)",
    ),
    "numbers of zero and one": (
        "tokens, real, classes",
        "F.cross_entropy(out(pooled(embed(first), mask.long())), y)",
    ),
    "real positions picked": ("series, real, tags", "F.cross_entropy(out(project(first)[mask]), y[mask])"),
    "an index to ignore": (
        "series, real, tags",
        "F.cross_entropy(out(project(first) * mask[..., None]).mT, y)",
    ),
    "the maximum of real ones": (
        "series, real, classes",
        "F.cross_entropy(out(project(first).masked_fill(~mask[..., None], -9).amax(1)), y)",
    ),
    "packed": (
        "series, real, classes",
        "F.cross_entropy(out(gru(pack(first, mask.sum(1), batch_first=True, enforce_sorted=False))[1][0]), y)",
    ),
    "the last real one": (
        "series, real, classes",
        "F.cross_entropy(out(gru(first)[0][torch.arange(16), mask.sum(1) - 1]), y)",
    ),
    "weights of a mean": (
        "series, real, tags.clamp(min=0)",
        "(F.cross_entropy(out(project(first)).mT, y, reduction='none') * mask).sum() / mask.sum()",
    ),
    "zeroed beforehand": (
        "series, real, classes",
        "F.cross_entropy(out(project(first * mask[..., None]).sum(1)), y)",
    ),
}
OTHERS = {
    "a prompt in all examples": (
        "series, (torch.arange(6) < lengths - 1), classes",
        "F.cross_entropy(out(project(first).mean(1) + mask.sum(1, keepdim=True)), y)",
    ),
    "masked at random": (
        "series, torch.rand(64, 6) < 0.5, classes",
        "F.cross_entropy(out(project(first).mean(1) + mask.sum(1, keepdim=True)), y)",
    ),
    "tokens that are labels as well": (
        "tokens, real, classes",
        "F.cross_entropy(out(embed(first))[:, :-1].mT, first[:, 1:].clamp(max=2), ignore_index=0) + 0 * mask.sum()",
    ),
    "a padding index": (
        "tokens, real, classes",
        "F.cross_entropy(out(F.embedding(first, embed.weight, 0).sum(1) / mask.sum(1, keepdim=True)), y)",
    ),
}
FAULTY = {
    "no mask in attention": (
        "tokens, real, classes",
        "F.cross_entropy(out(pooled(attend(h := embed(first), h, h)[0], mask)), y)",
    ),
    "the other way round": (
        "series, real, classes",
        "F.cross_entropy(out(pooled(project(first), (~mask) + 0.01)), y)",
    ),
    "the last position": (
        "series, real, classes",
        "F.cross_entropy(out(gru(first)[1][0] / mask.sum(1, keepdim=True)), y)",
    ),
    "the maximum of all": (
        "series, real, classes",
        "F.cross_entropy(out(project(first).amax(1) / mask.sum(1, keepdim=True)), y)",
    ),
}


def watched_loop(items, loss):
    loop = LOOP.replace("ITEMS", items).replace("LOSS", loss)
    return watched(f"{PRELUDE}{loop}", ("REL016",))


@pytest.mark.parametrize("name", RIGHT)
def test_padding_that_is_left_out_is_silent(name):
    watch = watched_loop(*RIGHT[name])
    assert watch.findings == []
    assert watch.experiments.records["REL016"].outcome == "held"


@pytest.mark.parametrize("name", OTHERS)
def test_what_may_mean_something_else_is_not_judged(name):
    watch = watched_loop(*OTHERS[name])
    assert watch.findings == []
    assert watch.experiments.records["REL016"].outcome == "not applicable"


@pytest.mark.parametrize("name", FAULTY)
def test_padding_that_is_trained_on_is_asked(name):
    (found,) = watched_loop(*FAULTY[name]).findings
    assert found.code == "REL016"
