# SPDX-License-Identifier: Apache-2.0
"""What a loss hands out comes back for the whole batch, in its order, however the batch was split and the loss retried."""

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.shared_context import LearnerContext

ROWS = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))


def learner_of(optimizer=lambda p: torch.optim.SGD(p, lr=0.1)):
    torch.manual_seed(0)
    options = LearnerOptions(name="net", precision="float32")
    return Learner(nn.Linear(3, 2), optimizer, options, LearnerContext(torch.device("cpu")))


def handing_out(net, **more):
    def loss(batch):
        predictions = net(batch)
        return ts.weighted(predictions.square().mean(1), outputs={"predictions": predictions, **more})

    return loss


@pytest.mark.parametrize("micro_batch", [None, 10, 3, [1, 7, 2]])
def test_outputs_are_whole_detached_and_in_order_however_the_batch_is_split(micro_batch):
    net = learner_of()
    expected = net(ROWS).detach()
    found = net.update(handing_out(net), ROWS, micro_batch=micro_batch).outputs["predictions"]
    assert not found.requires_grad
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert not torch.equal(net(ROWS), expected)  # of the weights before the step


@pytest.mark.parametrize("micro_batch", [None, 4])
def test_they_lie_along_the_dimension_of_the_split(micro_batch):
    net = learner_of()
    steps_first = ROWS.expand(4, 10, 3)

    def loss(batch):
        return ts.weighted(net(batch).square().mean((0, 2)), outputs={"last": batch, "first": batch[0, :, 0]})

    outputs = net.update(loss, steps_first, micro_batch=micro_batch, split=1).outputs
    assert torch.equal(outputs["last"], steps_first)
    assert torch.equal(outputs["first"], ROWS[:, 0])


def test_a_view_of_a_weight_stays_as_it_was_before_the_step():
    net = learner_of()
    before = net.weight.detach().clone()
    update = net.update(handing_out(net, weight=net.weight.expand(5, 2, 3).reshape(10, 3)), ROWS)
    chosen = net.update(
        lambda rows: ts.weighted(net(rows).sum(1), outputs={"weight": net.weight.detach()[:2]}), ROWS[:2]
    )
    assert torch.equal(update.outputs["weight"][:2], before)
    assert not torch.equal(chosen.outputs["weight"], net.weight)


def test_a_retry_in_smaller_parts_gives_only_its_own():
    net, refused = learner_of(), []

    def loss(batch):
        if len(batch) > 4:
            refused.append(len(batch))
            raise MemoryError("out of memory")
        return handing_out(net)(batch)

    expected = net(ROWS).detach()
    found = net.update(loss, ROWS, micro_batch="auto").outputs["predictions"]
    assert refused
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_lbfgs_gives_those_of_its_last_evaluation():
    net = learner_of(lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=4))
    seen = []

    def loss(batch):
        seen.append(net(batch).detach())
        return handing_out(net)(batch)

    found = net.update(loss, ROWS).outputs["predictions"]
    assert len(seen) > 1
    assert torch.equal(found, seen[-1])
    assert not torch.equal(found, seen[0])


def test_a_block_that_accumulates_joins_them_too():
    net = learner_of()
    expected = net(ROWS).detach()
    with net.accumulating() as update:
        for part in ROWS.split(4):
            update.backward(handing_out(net)(part))
    torch.testing.assert_close(update.result.outputs["predictions"], expected, rtol=1e-6, atol=1e-6)


def test_an_update_without_outputs_has_none():
    net = learner_of()
    assert net.update(lambda rows: net(rows).sum(1), ROWS).outputs == {}


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([ROWS], "was given a list; give named tensors"),
        ({"hidden": (ROWS, ROWS)}, "'hidden' is a tuple.*one name each"),
        ({"norm": ROWS.norm()}, r"'norm' is a number.*ts\.weighted\(values, norm=value\)"),
        ({"hidden": ROWS.T}, r"'hidden' has shape \(3, 10\), and the batch 10 examples.*transpose"),
    ],
)
def test_an_output_without_the_examples_of_the_batch_is_refused(outputs, message):
    net = learner_of()
    with pytest.raises(ts.LossError, match=message):
        net.update(lambda rows: ts.weighted(net(rows).sum(1), outputs=outputs), ROWS)


def test_other_names_for_another_part_are_refused():
    net = learner_of()

    def loss(rows):
        return ts.weighted(net(rows).sum(1), outputs={f"of_{len(rows)}": rows})

    with pytest.raises(ts.LossError, match=r"handed out \['of_4'\] for one part of the batch and \['of_6'\]"):
        net.update(loss, ROWS, micro_batch=[6, 4])
