# SPDX-License-Identifier: Apache-2.0
"""The law of no hidden synchronisation on torch's fake CUDA tensors: its own dispatch to CUDA, where no card is."""

import pytest
import torch
from support.steps import LOSSES, OPTIMIZERS, OPTIONS, module_for, training

from truestep.engine import step
from truestep.engine.shared_context import LearnerContext

pytestmark = [
    pytest.mark.skipif(torch.version.cuda is None, reason="needs a torch that is built for CUDA"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="a card is there: test_no_sync_gpu.py asks it"),
]


@pytest.fixture
def card():
    from support.fake_card import FakeCard  # it takes seconds to import, and is needed in few environments

    with FakeCard() as card:
        yield card


def update_of(make_learner, card, kind, optimizer="adamw", loss="weighted", nonfinite="raise"):
    context = LearnerContext(torch.device("cuda", 0), nonfinite=nonfinite)
    made = lambda module, optimizer, **options: make_learner(module, optimizer, context, **options)
    module = card.put(lambda: module_for(OPTIONS[kind]))
    return training(made, OPTIONS[kind], optimizer, loss, module)


@pytest.mark.parametrize("nonfinite", ["raise", "skip", "keep"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.sliced(6)
def test_no_operation_of_a_step_asks_for_a_value(make_learner, card, kind, loss, optimizer, nonfinite):
    net, update = update_of(make_learner, card, kind, optimizer, loss, nonfinite)
    for number in range(4):
        update()
        if number == 0:  # it may make states
            card.calls.clear()
            card.refuses_copies = True
    assert net._parts.counters.updates == 3  # as their reports say, which arrive one update late
    assert card.num_backwards == 4 * (5 if kind == "split" else 1)
    assert f"_fused_{optimizer}_" in card.calls


@pytest.mark.parametrize(
    "read",
    [
        torch.Tensor.item,
        bool,
        float,
        torch.Tensor.tolist,
        torch.nonzero,
        lambda each: each[each > 0],
        torch.Tensor.cpu,
        lambda each: each.to("cpu"),
        lambda each: torch.equal(each, each),
    ],
)
def test_a_read_that_is_put_into_the_step_is_found(make_learner, card, monkeypatch, read):
    net, update = update_of(make_learner, card, "plain")
    update()
    card.refuses_copies = True
    made, weight = step.step_optimizers, next(net.module.parameters())
    monkeypatch.setattr(step, "step_optimizers", lambda *given: (read(weight.detach().sum()), made(*given)))
    with pytest.raises(RuntimeError):
        update()
