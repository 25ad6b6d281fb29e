# SPDX-License-Identifier: Apache-2.0
"""Right losses keep their relations: drawn from the habits of people, and written by hand."""

import random

import pytest
import torch
import torch.nn.functional as F
from programs.draws import filled, suited
from programs.habits import named, slots
from torch import nn

import truestep as ts

from .drawn import training

SLOTS = ("source", "net", "around", "terms", "form", "precision", "batching", "augmentation")
# habits whose examples mix by what they mean, or whose items the loss does not use
ASKED = {"contrastive", "two_denominators", "codebook", "samples_with_names", "hardest_rows"}
# once accused: own denominators cut into micro-batches, a reward that no drawn action gets, weight norm over a weight that two
# layers share, a codebook's averages before similarities, labels that similarities leave unused
ONCE_ACCUSED = {17, 70, 86, 116, 142}
# no loss of a batch: what compiles, batches that are made by acting, a thread that reads on for ever, batches that are objects, and
# those whose rows lie in a sparse matrix
OF_ANOTHER_KIND = {"compiled", "environment", "prefetched_by_thread", "graph_batches", "sparse_adjacency"}
ALONE = {"package", "two_workers", "persistent_workers"}


def drawn_habits(number):
    """Return habits of a plain program, one for each slot that says what the loss is; the first two by the number."""
    drawn = random.Random(number)
    chosen = [named("plain")]
    for place, slot in enumerate(("net", "terms", *SLOTS)):
        habits = [] if slot in {each.slot for each in chosen} else suited(slots()[slot], chosen)
        fitting = [
            each for each in habits if not ALONE & {each.name, *each.words} and filled([*chosen, each])
        ]
        if fitting:
            chosen.append(fitting[number % len(fitting)] if place < 2 else drawn.choice(fitting))
    return [each.name for each in chosen]


# torch says so in the plain loop, too
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.sliced(4)
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=[] if n < 20 or n in ONCE_ACCUSED else [pytest.mark.slow]) for n in range(260)],
)
def test_a_drawn_right_loss_keeps_its_relations(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = drawn_habits(number)
    if kind := OF_ANOTHER_KIND & set(names):
        pytest.skip(f"{kind} is for the whole program")
    loss, batch, model = training(*names)
    found = ts.relations(loss, batch, trains=model)
    found.check()
    assert not found.of("question") or ASKED & set(names), f"{names}\n{found}"


def rows(count=8, width=6, classes=3):
    return torch.randn(count, width), torch.arange(count) % classes


def words(count=6, length=7):
    ids = torch.randint(1, 20, (count, length))
    mask = (torch.arange(length) < (torch.arange(count) % (length - 2) + 2).unsqueeze(1)).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": torch.where(mask > 0, ids, -100)}


class Language(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.embed, self.causal = nn.Embedding(20, 8), causal
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 20)

    def forward(self, ids, mask):
        size = ids.shape[1]
        upper = torch.ones(size, size, dtype=torch.bool).triu(1) if self.causal else None
        return self.head(self.layer(self.embed(ids), src_mask=upper, src_key_padding_mask=mask == 0))


def masked_language():
    net = Language(causal=False)

    def loss(batch):
        scores = net(batch["input_ids"], batch["attention_mask"])
        return F.cross_entropy(scores.transpose(1, 2), batch["labels"], ignore_index=-100)

    return loss, words(), net, {}


def causal_language():
    net = Language(causal=True)

    def loss(batch):
        scores = net(batch["input_ids"], batch["attention_mask"])[:, :-1]
        return F.cross_entropy(
            scores.transpose(1, 2), batch["labels"][:, 1:], reduction="none", ignore_index=-100
        )

    return loss, words(), net, {"causal": True}


def packed_lengths():
    net = nn.ModuleDict({"rnn": nn.LSTM(6, 8, batch_first=True), "head": nn.Linear(8, 3)})
    batch = {"x": torch.randn(6, 5, 6), "lengths": torch.tensor([5, 2, 3, 1, 4, 2]), "y": torch.arange(6) % 3}

    def loss(batch):
        lengths = batch["lengths"]
        packed = nn.utils.rnn.pack_padded_sequence(
            batch["x"], lengths, batch_first=True, enforce_sorted=False
        )
        return F.cross_entropy(net["head"](net["rnn"](packed)[1][0][-1]), batch["y"])

    return loss, batch, net, {}


def sequences_first():
    net = nn.ModuleDict({"rnn": nn.GRU(6, 8, 2, dropout=0.2), "head": nn.Linear(8, 3)})

    def loss(batch):
        x, y = batch
        return F.cross_entropy(net["head"](net["rnn"](x)[0][-1]), y)

    return loss, (torch.randn(5, 7, 6), torch.arange(7) % 3), net, {"dim": 1}


def variational():
    net = nn.ModuleDict({"encode": nn.Linear(6, 8), "decode": nn.Linear(4, 6)})

    def loss(batch):
        mean, log_variance = net["encode"](batch).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1)
        return (F.mse_loss(net["decode"](code), batch, reduction="none").sum(1) + divergence).mean()

    return loss, rows()[0], net, {}


def quantised():
    net = nn.ModuleDict({"encode": nn.Linear(6, 4), "decode": nn.Linear(4, 6), "codes": nn.Embedding(5, 4)})

    def loss(batch):
        code = net["encode"](batch)
        nearest = net["codes"](torch.cdist(code, net["codes"].weight).argmin(1))
        passed = code + (nearest - code).detach()
        commitment = F.mse_loss(nearest, code.detach()) + 0.25 * F.mse_loss(nearest.detach(), code)
        return F.mse_loss(net["decode"](passed), batch) + commitment

    return loss, rows()[0], net, {}


def two_views():
    net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 4))

    def loss(batch):
        first, second = (F.normalize(net(batch + 0.1 * torch.randn_like(batch)), dim=1) for _ in range(2))
        return F.cross_entropy(first @ second.t() / 0.1, torch.arange(len(batch)))

    return loss, rows()[0], net, {"decomposable": False}


def mixed_up():
    net = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.5), nn.ReLU(), nn.Linear(12, 3))

    def loss(batch):
        (x, y), order = batch, torch.randperm(len(batch[0]))
        share = torch.distributions.Beta(1.0, 1.0).sample()
        out = net(share * x + (1 - share) * x[order])
        return share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])

    return loss, rows(), net, {}


def student_of_a_teacher():
    net, teacher = nn.Linear(6, 3), nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))

    def loss(batch):
        with torch.no_grad():
            wanted = teacher(batch[0]).softmax(1)
        return F.kl_div(net(batch[0]).log_softmax(1), wanted, reduction="batchmean") + F.cross_entropy(
            net(batch[0]), batch[1]
        )

    return loss, rows(), net, {}


def generator_of_a_pair():
    net = nn.ModuleDict({"generator": nn.Linear(6, 6), "critic": nn.Linear(6, 1)})

    def loss(batch):
        return F.softplus(-net["critic"](net["generator"](batch))).mean()

    return loss, rows()[0], net["generator"], {}


def weighted_values():
    net = nn.Linear(6, 3)

    def loss(batch):
        x, y, weight = batch
        return ts.weighted(F.cross_entropy(net(x), y, reduction="none"), weight)

    return loss, (*rows(), torch.rand(8) + 0.1), net, {}


def own_denominators():
    net = nn.Linear(6, 3)

    def loss(batch):
        x, y = batch
        values, first = F.cross_entropy(net(x), y, reduction="none"), (y == 0).float()
        parts = ((values * part).sum() / part.sum().clamp(min=1) for part in (first, 1 - first))
        return sum(parts)

    return loss, rows(count=5), net, {}


def reward_of_drawn_actions():
    net = nn.Linear(6, 5)
    nn.init.constant_(net.bias[4:], 2.0)  # an action that no example has as its target is the usual one

    def loss(batch):
        policy = torch.distributions.Categorical(logits=net(batch["states"]))
        action = policy.sample()
        reward = (action == batch["target"]).float() - 0.3
        return -(policy.log_prob(action) * reward).mean()

    return loss, {"states": rows()[0], "target": torch.arange(8) % 2}, net, {}


def label_of_two_that_are_one_here():
    net = nn.Linear(6, 1)

    def loss(batch):
        x, y = batch
        return F.binary_cross_entropy_with_logits(net(x).squeeze(1), (y > 0).float())

    x, y = rows()
    return loss, (x, y % 2 + 1), net, {}


def weight_norm_of_a_shared_weight():
    net = nn.ModuleDict({"embed": nn.Embedding(7, 6), "back": nn.Linear(6, 7, bias=False)})
    net["back"].weight = net["embed"].weight
    nn.utils.parametrizations.weight_norm(net["back"])

    def loss(batch):
        ids, y = batch["ids"], batch["y"]
        return F.cross_entropy(net["back"](net["embed"](ids)).tanh(), y)

    return loss, {"ids": torch.arange(8) % 7, "y": torch.arange(8) % 3}, net, {}


def low_precision():
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))

    def loss(batch):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(net(batch[0]), batch[1])

    return loss, rows(), net, {}


BY_HAND = (
    *(masked_language, causal_language, packed_lengths, sequences_first, variational, quantised, two_views),
    *(mixed_up, student_of_a_teacher, generator_of_a_pair, weighted_values, low_precision),
    *(
        own_denominators,
        reward_of_drawn_actions,
        label_of_two_that_are_one_here,
        weight_norm_of_a_shared_weight,
    ),
)


@pytest.mark.sliced(4)
@pytest.mark.parametrize("make", BY_HAND)
def test_a_right_loss_by_hand_keeps_its_relations(make):
    torch.manual_seed(2)
    loss, batch, trains, options = make()
    found = ts.relations(loss, batch, trains=trains, **options)
    found.check()
    tried = {each.relation for each in found.of("held")}
    if make in (masked_language, causal_language, packed_lengths):
        assert "padding" in tried
    if make is causal_language:
        assert "later" in tried
