# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted into losses: each is broken by the relation that says so, on several models and batches."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

WIDTH, STEPS, CLASSES = 6, 5, 3


class Rows(nn.Module):
    """A small network with dropout over the last position of a sequence."""

    def __init__(self, outputs):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(WIDTH, 16), nn.Dropout(0.3), nn.Linear(16, outputs)

    def forward(self, x):
        return self.last(self.drop(torch.tanh(self.first(x))).mean(1))


class Normed(nn.Module):
    """Convolutions with batch normalisation."""

    def __init__(self, outputs):
        super().__init__()
        self.first, self.norm, self.last = (
            nn.Conv1d(WIDTH, 8, 3, padding=1),
            nn.BatchNorm1d(8),
            nn.Linear(8, outputs),
        )

    def forward(self, x):
        return self.last(F.silu(self.norm(self.first(x.transpose(1, 2)))).mean(2))


class Attention(nn.Module):
    """Self-attention with dropout."""

    def __init__(self, outputs):
        super().__init__()
        self.first = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.2, batch_first=True)
        self.last = nn.Linear(WIDTH, outputs)

    def forward(self, x):
        return self.last(self.first(x).mean(1))


MODELS = (Rows, Normed, Attention)
PLANTS = {}


def plant(*relations, outputs=CLASSES, **options):
    def keep(make):
        PLANTS[make.__name__] = (make, relations, outputs, options)
        return make

    return keep


@plant("halves", "item: batch['score']", outputs=1)
def column_against_row(net):
    return lambda batch: (net(batch["x"]) - batch["score"]).square().mean()


@plant("halves")
def softmax_over_the_batch(net):
    def loss(batch):
        return F.nll_loss(torch.log_softmax(net(batch["x"]), 0), batch["y"])

    return loss


@plant("halves")
def attention_over_the_batch(net):
    mixer = nn.MultiheadAttention(WIDTH, 2)  # sequences first, and it is given batches first

    def loss(batch):
        return F.cross_entropy(net(mixer(batch["x"], batch["x"], batch["x"])[0]), batch["y"])

    return loss


@plant("twice")
def summed_over_the_batch(net):
    return lambda batch: F.cross_entropy(net(batch["x"]), batch["y"], reduction="sum")


@plant("twice")
def divided_by_a_fixed_number(net):
    return lambda batch: F.cross_entropy(net(batch["x"]), batch["y"], reduction="none").sum() / 32


@plant("twice")
def one_term_is_a_sum(net):
    def loss(batch):
        out = net(batch["x"])
        return F.cross_entropy(out, batch["y"]) + 0.1 * out.square().sum()

    return loss


@plant("permuted")
def view_for_transpose(net):
    def loss(batch):
        x = batch["x"]
        sequences_first = x.reshape(x.shape[1], x.shape[0], x.shape[2])
        return F.cross_entropy(net(sequences_first.transpose(0, 1)), batch["y"])

    return loss


@plant("slope", "moving")
def detached_half(net):
    def loss(batch):
        out = net(batch["x"]).detach() + 0.2 * net(batch["x"])
        return F.cross_entropy(out, batch["y"])

    return loss


@plant("moving")
def last_layer_without_graph(net):
    def loss(batch):
        kept = {name: each.detach() for name, each in net.last.named_parameters()}
        out = torch.func.functional_call(
            net, {f"last.{name}": each for name, each in kept.items()}, (batch["x"],)
        )
        return F.cross_entropy(out, batch["y"])

    return loss


@plant("slope", "moving")
def data_of_a_weight(net):
    def loss(batch):
        size = sum(each.data.square().sum() for each in net.parameters()) * 10
        return F.cross_entropy(net(batch["x"]), batch["y"]) * (1 + size)

    return loss


@plant("slope", "moving")
def computed_without_gradient(net):
    def loss(batch):
        with torch.no_grad():
            weight = net(batch["x"]).square().sum(1) * 20
        return (F.cross_entropy(net(batch["x"]), batch["y"], reduction="none") * (1 + weight)).mean()

    return loss


@plant("item: batch['mask']")
def mask_not_used(net):
    return lambda batch: F.cross_entropy(net(batch["x"]), batch["y"])


@plant("item: batch['y']")
def label_not_used(net):
    return lambda batch: F.cross_entropy(net(batch["x"]), net(batch["x"]).argmax(1))


@plant("trained")
def layers_in_a_list(net):
    net.more = [nn.Linear(CLASSES, CLASSES)]
    forward = net.forward
    net.forward = lambda x: net.more[0](forward(x))
    return lambda batch: F.cross_entropy(net(batch["x"]), batch["y"])


@plant("trained", trains=lambda net: list(net.first.parameters()))
def layer_left_out_of_the_optimizer(net):
    return lambda batch: F.cross_entropy(net(batch["x"]), batch["y"])


@plant("one")
def bare_squeeze(net):
    return lambda batch: F.cross_entropy(net(batch["x"]).squeeze(), batch["y"])


@plant("padding")
def padding_is_averaged(net):
    def loss(batch):
        values = F.cross_entropy(net(batch["x"]), batch["y"], reduction="none")
        return (values * batch["mask"].sum(1)).sum() / batch["mask"].sum()

    return loss


@plant("later", causal=True)
def no_causal_mask(net):
    net.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True)
    return lambda batch: net.encoder(batch["x"])[:, :, 0]


def batch_of(count, seed):
    drawn = torch.Generator().manual_seed(seed)
    lengths = torch.arange(count) % (STEPS - 1) + 2
    return {
        "x": torch.randn(count, STEPS, WIDTH, generator=drawn),
        "y": torch.arange(count) % CLASSES,
        "score": torch.randn(count, generator=drawn),
        "mask": torch.arange(STEPS) < lengths.unsqueeze(1),
    }


def cases():
    """Each mistake on one model, the models in turn; on the others too where there is time."""
    for number, name in enumerate(PLANTS):
        for place, model in enumerate(MODELS):
            marks = [] if place == number % len(MODELS) else [pytest.mark.slow]
            yield pytest.param(name, model, 7 + place, marks=marks, id=f"{name}-{model.__name__}")


@pytest.mark.parametrize(("name", "model", "count"), list(cases()))
def test_a_planted_mistake_is_broken_by_its_relation(name, model, count):
    make, relations, outputs, options = PLANTS[name]
    torch.manual_seed(3)
    net = model(outputs)
    loss = make(net)
    options = dict(options)
    trains = options.pop("trains", lambda net: net)(net)
    found = ts.relations(loss, batch_of(count, 1), trains=trains, **options)
    broken = {
        each.relation.partition(":")[0] if "batch" not in each.relation else each.relation
        for each in found.of("broken")
    }
    assert broken & set(relations), str(found)
