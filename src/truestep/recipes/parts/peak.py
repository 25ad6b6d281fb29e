# SPDX-License-Identifier: Apache-2.0
"""How much memory losses take while they go backward."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from truestep.model.summaries.living import ModelLivingMemory


def recipe_peak_mib(net: nn.Module, losses: Callable[[Any], Iterable[Tensor]]) -> float:
    """Return the most that lives at one time while losses are computed and go backward, each before the next is computed.

    On a copy of the network, whose weights and gradients are left out.
    """
    made = copy.deepcopy(net)
    for parameter in made.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with ModelLivingMemory() as living:
        for loss in losses(made):
            torch.autograd.backward(loss.mean())
            del loss
    return float(living.peak) / 2**20
