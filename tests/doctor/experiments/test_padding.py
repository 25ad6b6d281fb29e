# SPDX-License-Identifier: Apache-2.0
"""Padding that a mask leaves out changes no gradient, however it is left out; masks of other meanings are not judged.

Where no mask is handed over, more padding changes none: lengths, one value behind the sequences, and labels tell where they end.
"""

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
    "tokens that are labels as well": (
        "tokens, real, classes",
        "F.cross_entropy(out(embed(first))[:, :-1].mT, first[:, 1:].clamp(max=2), ignore_index=0) + 0 * mask.sum()",
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
}
FAULTY = {
    "an index of padding, whose vector is added": (
        "tokens, real, classes",
        "F.cross_entropy(out(F.embedding(first, embed.weight, 0).sum(1) / mask.sum(1, keepdim=True)), y)",
    ),
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


@pytest.mark.sliced(3)
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


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", FAULTY)
def test_padding_that_is_trained_on_is_asked(name):
    (found,) = watched_loop(*FAULTY[name]).findings
    assert found.code == "REL016"


PADDED = """
from torch.nn.utils.rnn import pad_packed_sequence, pad_sequence
sizes = torch.randint(2, 9, (64,)).tolist()
words = [torch.randint(1, 12, (size,)) for size in sizes]
rows = [torch.randn(size, 4) for size in sizes]
labels = [torch.randint(0, 3, (size,)) for size in sizes]
words_of, none_of = nn.Embedding(12, 8), nn.Embedding(12, 8, padding_idx=0)
layer, lstm, next_word = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 12)
opt = torch.optim.SGD([p for part in (*parts, words_of, none_of, layer, lstm, next_word) for p in part.parameters()], lr=0.1)
def p(each, value=0): return pad_sequence(each, True, value)
def packed(x, n): return pack(x, n, batch_first=True, enforce_sorted=False)
def real(x, n): return torch.arange(x.shape[1]) < n[:, None]
def collate(numbers):
    w, s, t = ([each[n] for n in numbers] for each in (words, rows, labels))
    k, n = classes[numbers], torch.tensor([sizes[each] for each in numbers])
    return (ITEMS,)
for items in DataLoader(range(64), batch_size=8, shuffle=True, collate_fn=collate):
    x, y, *n = items
    n = torch.as_tensor(n[0]) if n else None
    opt.zero_grad()
    F.cross_entropy(LOSS).backward()
    opt.step()
"""
# the items, and what the loss is given: rightly, and faultily
ENDS = {
    "a mask of the tokens": (
        "p(w), k",
        "out(pooled(layer(words_of(x), src_key_padding_mask=x == 0), x != 0)), y",
        "out(pooled(layer(words_of(x)), x != 0)), y",
    ),
    "an index of padding": (
        "p(w), k",
        "out(none_of(x).sum(1) / (x > 0).sum(1, keepdim=True)), y",
        "out(none_of(x).mean(1)), y",
    ),
    "packed by lengths": ("p(s), k, n", "out(gru(packed(x, n))[1][0]), y", "out(gru(x)[1][0]), y"),
    "the last real one": (
        "p(s), k, n",
        "out(gru(x)[0][torch.arange(len(x)), n - 1]), y",
        "out(gru(x)[0][:, -1]), y",
    ),
    "lengths in a list": ("p(s), k, n.tolist()", "out(gru(packed(x, n))[1][0]), y", "out(gru(x)[1][0]), y"),
    "labels to ignore": (
        "p(w), p(t, -100)",
        "out(words_of(x)).mT, y",
        "out(words_of(x) - words_of(x).mean(1, keepdim=True)).mT, y",
    ),
    "a packed LSTM": (
        "p(w), p(t, -100), n",
        "out(pad_packed_sequence(lstm(packed(words_of(x), n))[0], True, total_length=x.shape[1])[0]).mT, y",
        "out(lstm(words_of(x).flip(1))[0].flip(1)).mT, y",
    ),
    "the next word": (
        "p(w), k",
        "next_word(lstm(words_of(x[:, :-1]))[0]).mT, x[:, 1:], ignore_index=0",
        "next_word(lstm(words_of(x[:, :-1]))[0]).mT, x[:, 1:]",
    ),
    "a mask of lengths": (
        "p(s), k, n",
        "out(pooled(project(x), real(x, n))), y",
        "out(project(x).mean(1)), y",
    ),
    "a mask beside labels": (
        "p(w), p(t, -100), (p(w) > 0).long()",
        "out(layer(words_of(x * n), src_key_padding_mask=n == 0)).mT, y",
        "out(layer(words_of(x * n))).mT, y",
    ),
}
UNCLEAR = {
    "no padding": ("torch.stack([each[:2] for each in w]), k", "out(words_of(x).mean(1)), y"),
    "a table of words": ("torch.randint(0, 3, (8, 7)), k", "out(words_of(x).mean(1)), y"),
    "numbers that are no lengths": ("torch.randn(8, 2, 4), k", "out(project(x).mean(1)), y"),
    "text that ends alike once": ("torch.arange(1, 9).repeat(8, 1), k", "out(words_of(x).mean(1)), y"),
}


def watched_padded(items, loss):
    return watched(PRELUDE + PADDED.replace("ITEMS", items).replace("LOSS", loss), ("REL016",))


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", ENDS)
def test_more_padding_changes_nothing_where_it_is_left_out(name):
    items, right, _ = ENDS[name]
    watch = watched_padded(items, right)
    assert watch.findings == []
    assert watch.experiments.outcome("REL016") == ("held", None)


@pytest.mark.sliced(3)
@pytest.mark.parametrize("name", ENDS)
def test_more_padding_that_changes_a_gradient_is_asked(name):
    items, _, faulty = ENDS[name]
    (found,) = watched_padded(items, faulty).findings
    assert "2 more positions of padding" in found.message


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_may_be_no_padding_is_not_made_longer(name):
    watch = watched_padded(*UNCLEAR[name])
    assert watch.experiments.outcome("REL016")[0] == "not applicable"
