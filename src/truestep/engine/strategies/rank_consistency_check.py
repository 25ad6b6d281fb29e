# SPDX-License-Identifier: Apache-2.0
"""What ranks must have in common to train the same: what trains, the mode of each layer, and now and then the weights."""

import json
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from truestep.core.device_specific import to_float64
from truestep.core.errors import RankError
from truestep.engine.processes.world import World
from truestep.engine.weights import LearnerWeights

_NAMED = 4  # in an error; of more their number is said


class RankSwitches:
    """Which parameters of some learners train, and which of their layers are in training mode, on this rank.

    With the step's number a power of two, on a device at the first alone, also what the weights are: a loop may change them before
    an update, each rank by what it has itself, and change them back behind it. That shows in no save, and to look costs next to
    nothing so seldom.
    """

    def __init__(self, learners: Sequence[LearnerWeights], world: World) -> None:
        self._world = world
        self._whole = [named for weights in learners if not weights.are_divided for named in weights.named]
        self._parameters = [named for weights in learners for named in weights.named]
        layers = [named for weights in learners for named in weights.module.named_modules()]
        self._layers = [(name or "the module", layer) for name, layer in layers]

    def sum(self) -> int:
        """Return a number that is the same on two ranks where all of them are."""
        trains = bytes(parameter.requires_grad for _, parameter in self._parameters)
        modes = bytes(layer.training for _, layer in self._layers)
        return zlib.crc32(
            trains + modes + (self._weight_sums().numpy().tobytes() if self._compares_weights else b"")
        )

    @property
    def _compares_weights(self) -> bool:
        """Whether this update does: on a device the first alone, as the host waits for what it reads there."""
        step = self._world.step
        if not self._whole or step < 1 or step & (step - 1):
            return False
        return step == 1 or all(parameter.is_cpu for _, parameter in self._whole)

    @torch.no_grad()
    def _weight_sums(self) -> Tensor:
        return torch.stack([_sum_of_values(parameter) for _, parameter in self._whole]).cpu()

    def difference(self, world: World, what: str) -> RankError:
        """Return the error for ranks whose sums differ, the same on all: all come here."""
        mine: dict[str, Any] = {
            "trains": [name for name, parameter in self._parameters if parameter.requires_grad],
            "is in training mode": [name for name, layer in self._layers if layer.training],
        }
        sums = [number.hex() for number in self._weight_sums().tolist()] if self._compares_weights else []
        sent = json.dumps(mine | {"sums": sums}).encode()
        everybody = [json.loads(each) for each in world.share_bytes(sent, what)]
        found = []
        for said in mine:
            sets = [set(each[said]) for each in everybody]
            names = sorted(set.union(*sets) - set.intersection(*sets))
            for name in names[:_NAMED]:
                has = [name in each for each in sets]
                found.append(f"{name} {said} on rank {has.index(True)} and not on rank {has.index(False)}")
            found += [f"so do {len(names) - _NAMED} more"] if len(names) > _NAMED else []
        if not found:
            return self._different_weights_error([each["sums"] for each in everybody], what)
        return RankError(
            f"The ranks don't train the same in {what}: {'; '.join(found)}. Their gradients would be summed as if they did, and a "
            "checkpoint keeps rank 0's. Freeze, unfreeze, train() and eval() on all ranks alike, not under `if run.is_main:`."
        )

    def _different_weights_error(self, everybody: Sequence[Sequence[str]], what: str) -> RankError:
        rank = next(rank for rank, sums in enumerate(everybody) if sums != everybody[0])
        pairs = zip(self._whole, everybody[0], everybody[rank], strict=True)
        names = [name for (name, _), first, other in pairs if first != other]
        listed = ", ".join(names[:_NAMED]) + (
            f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        )
        return RankError(
            f"The ranks don't train the same in {what}, with different weights: {listed} on rank {rank} are not those on rank 0. "
            "The optimizer steps there with another rate or decay, or something besides it has changed them: one rank alone, or "
            "each by its own rows or random numbers (a step of SAM, noise, max_norm of an embedding). So the gradients are of no "
            "one model. Change them alike on all ranks: of a gradient, what all ranks have, ts.gather(gradient[None]).mean(0); of "
            "noise, one seed, torch.Generator().manual_seed(run.step); for max_norm, behind each update, with torch.no_grad(): "
            "weight.copy_(torch.renorm(weight, 2, 0, 1.0))."
        )


def _sum_of_values(weight: Tensor) -> Tensor:
    return to_float64(torch.view_as_real(weight) if weight.is_complex() else weight).sum()
