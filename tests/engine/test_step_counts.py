# SPDX-License-Identifier: Apache-2.0
"""Where the numbers of steps are that optimizers keep: a fused kernel of a card reads them there, the others on the host."""

import copy

import pytest
import torch
from support.card import Card
from torch import nn
from torch.optim import Adam, AdamW

from truestep.engine.shared_context import LearnerContext
from truestep.engine.state import learner_state, load_learner_state

OPTIMIZERS = [Adam, AdamW]
if torch.__version__ >= "2.13":  # before, it has no fused kernel for CUDA
    OPTIMIZERS.append(torch.optim.Adagrad)
KERNELS = {"chosen": {}, "fused": {"fused": True}, "loop": {"fused": False, "foreach": False}}


def learner_on(make_learner, place, optimizer, options):
    torch.manual_seed(0)
    context = LearnerContext(torch.device(place), nonfinite="keep")
    return make_learner(nn.Linear(4, 2), lambda p: optimizer(p, lr=0.1, **options), context, name="net")


def updated(learner, times):
    place = learner.module.weight.device
    for number in range(times):
        rows = torch.full((3, 4), number + 1.0).to(place)
        learner.update(lambda batch: learner(batch).square().sum(1), rows)
    return learner.module.weight.detach().cpu()


def places_of_counts(learner):
    return {state["step"].device.type for state in learner.optimizers[0].state.values()}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("now", KERNELS)
@pytest.mark.parametrize("before", KERNELS)
@pytest.mark.sliced(3)
def test_a_state_of_another_kernel_and_device_goes_on(make_learner, optimizer, before, now):
    first = learner_on(make_learner, "cpu", optimizer, KERNELS[before])
    updated(first, 2)
    state = copy.deepcopy(learner_state(first._parts))
    whole = updated(first, 2)
    with Card():
        second = learner_on(make_learner, "cuda", optimizer, KERNELS[now])
        load_learner_state(second._parts, state)
        found = updated(second, 2)
        assert places_of_counts(second) == {"cpu" if now == "loop" else "cuda"}
        assert next(iter(second.optimizers[0].state.values()))["step"].to("cpu") == 4
    torch.testing.assert_close(found, whole)
