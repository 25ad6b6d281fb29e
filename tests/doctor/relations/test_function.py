# SPDX-License-Identifier: Apache-2.0
"""`ts.relations` as people call it: what it takes, what it says, what it refuses."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts


def net_and_batch():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), (
        torch.randn(7, 6),
        torch.arange(7) % 3,
    )


def by_example(net):
    return lambda batch: F.cross_entropy(net(batch[0]), batch[1], reduction="none")


WAYS = {
    "module": lambda net: net,
    "parameters": lambda net: net.parameters(),
    "list": lambda net: list(net.parameters()),
    "named": lambda net: net.named_parameters(),
    "optimizer": lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
    "groups": lambda net: [
        {"params": list(net[0].parameters())},
        {"params": list(net[2].parameters()), "lr": 1.0},
    ],
    "modules": lambda net: [net[0], net[2]],
    "dict of modules": lambda net: {"first": net[0], "last": net[2]},
}


@pytest.mark.sliced(3)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_trained_can_be_said_in_many_ways(way):
    net, batch = net_and_batch()
    found = ts.relations(by_example(net), batch, trains=WAYS[way](net))
    found.check()
    assert {"permuted", "halves", "twice", "one", "changed", "micro-batches", "moving", "trained"} <= {
        each.relation for each in found.of("held")
    }


def test_a_learner_is_what_it_trains(tmp_path):
    run = ts.Run(tmp_path / "run", seed=0)
    net = run.learner(nn.Linear(6, 3), lambda p: torch.optim.SGD(p, lr=0.1))
    found = ts.relations(by_example(net), net_and_batch()[1], trains=net)
    found.check()
    run.finish()


def test_it_is_a_table_and_json_and_a_mapping_by_name():
    net, batch = net_and_batch()
    found = ts.relations(by_example(net), batch, trains=net)
    assert json.loads(json.dumps(found.to_dict()))["num_examples"] == 7
    assert str(found).startswith("Relations over 7 examples: ")
    assert max(map(len, str(found).splitlines())) <= 110
    assert found["halves"].outcome == "held"
    assert found["halves"].numbers.endswith("expected 0")
    with pytest.raises(KeyError, match="halves"):
        found["halfes"]


def test_check_names_each_broken_relation_with_numbers_and_place():
    net, (x, y) = net_and_batch()

    def loss(batch):
        out = net(batch[0])
        return F.nll_loss(out.log_softmax(0), batch[1]) + out.square().sum()

    found = ts.relations(loss, (x, y), trains=net)
    with pytest.raises(ts.LossError) as raised:
        found.check()
    message = str(raised.value)
    assert "halves" in message
    assert "twice" in message
    assert "log_softmax of (7, 3) into (7, 3) at " in message
    assert "test_function.py:" in message
    with pytest.raises(ts.LossError) as raised:
        found.check(ignore="halves")
    assert "halves (" not in str(raised.value)
    with pytest.raises(ts.LossError, match="Did you mean 'twice'"):
        found.check(ignore=["twise"])


def test_items_and_slopes_are_left_out_by_their_first_word():
    net, batch = net_and_batch()
    found = ts.relations(lambda batch: net(batch[0]).square().mean(), batch, trains=net)
    assert found["item: batch[1]"].outcome == "broken"
    found.check(ignore=["item"])


def test_what_mixes_by_meaning_is_a_question_that_names_its_line():
    net, (x, _) = net_and_batch()

    def loss(batch):
        code = F.normalize(net(batch), dim=1)
        return F.cross_entropy(code @ code.t(), torch.arange(len(batch)))

    found = ts.relations(loss, x, trains=net)
    found.check()
    (asked,) = [each for each in found.of("question") if each.relation == "halves"]
    assert "compared with all others" in asked.why
    assert "test_function.py" in asked.place
    assert ts.relations(loss, x, trains=net, decomposable=False)["halves"].outcome == "not tried"


def test_parameters_with_hooks_are_left_out():
    net, batch = net_and_batch()
    net[0].weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    ts.relations(by_example(net), batch, trains=net).check()


def test_a_batch_of_one_tries_what_it_can():
    net, (x, y) = net_and_batch()
    found = ts.relations(by_example(net), (x[:1], y[:1]), trains=net)
    found.check()
    assert found["permuted"].why == "the batch holds one example"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"loss": torch.ones(())}, ts.LossError, "needs the loss as a function of the batch"),
        ({"loss": lambda batch: 0.5}, ts.LossError, "got a float"),
        ({"loss": lambda batch: batch[0].sum()}, ts.LossError, "needs no gradient"),
        ({"batch": (torch.ones(3, 6), torch.ones(9))}, ts.BatchError, "can't tell where the examples"),
        ({"trains": 3}, ts.OptionError, "was given an int"),
        ({"trains": nn.Linear(1, 1).requires_grad_(False)}, ts.OptionError, "none of which needs a gradient"),
        ({"trains": nn.LazyLinear(3)}, ts.OptionError, "lazy layers"),
        ({"causal": 1}, ts.OptionError, "True or False"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_what_to_write(change, error, words):
    net, batch = net_and_batch()
    given = {"loss": by_example(net), "batch": batch, "trains": net, **change}
    with pytest.raises(error, match=words):
        ts.relations(given.pop("loss"), given.pop("batch"), **given)


def test_a_batch_is_never_written_to():
    net, batch = net_and_batch()
    kept = [each.clone() for each in batch]

    def loss(batch):
        batch[0].mul_(2)
        return F.cross_entropy(net(batch[0]), batch[1])

    ts.relations(loss, batch, trains=net).check()
    assert all(torch.equal(first, second) for first, second in zip(kept, batch, strict=True))


def padded_tokens():
    torch.manual_seed(0)
    tokens = torch.randint(1, 9, (8, 7))
    for row, length in enumerate((7, 3, 5, 7, 2, 4, 6, 3)):
        tokens[row, length:] = 0
    return tokens, torch.arange(8) % 2


@pytest.mark.parametrize(("counts", "outcome"), [(True, "question"), (False, "held")])
def test_padding_that_no_mask_tells_is_made_longer(counts, outcome):
    net = nn.ModuleList([nn.Embedding(9, 8), nn.Linear(8, 2)])

    def loss(batch):
        real = torch.ones_like(batch[0]) if counts else batch[0] != 0
        hidden = (net[0](batch[0]) * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return F.cross_entropy(net[1](hidden), batch[1])

    found = ts.relations(loss, padded_tokens(), trains=net)
    assert [each.outcome for each in found.verdicts if each.relation == "padding"] == [outcome]
