# SPDX-License-Identifier: Apache-2.0
"""What ranks must have in common to train the same: which parameters train, and the mode of each layer."""

import json
import zlib
from collections.abc import Sequence

from truestep.core.errors import RankError
from truestep.engine.processes.world import World
from truestep.engine.weights import LearnerWeights

_NAMED = 4  # in an error; of more their number is said


class RankSwitches:
    """Which parameters of some learners train, and which of their layers are in training mode, on this rank."""

    def __init__(self, learners: Sequence[LearnerWeights]) -> None:
        self._parameters = [named for weights in learners for named in weights.named]
        layers = [named for weights in learners for named in weights.module.named_modules()]
        self._layers = [(name or "the module", layer) for name, layer in layers]

    def sum(self) -> int:
        """Return a number that is the same on two ranks where all of them are."""
        trains = bytes(parameter.requires_grad for _, parameter in self._parameters)
        return zlib.crc32(trains + bytes(layer.training for _, layer in self._layers))

    def difference(self, world: World, what: str) -> RankError:
        """Return the error for ranks whose sums differ, the same on all: all come here."""
        mine = {
            "trains": [name for name, parameter in self._parameters if parameter.requires_grad],
            "is in training mode": [name for name, layer in self._layers if layer.training],
        }
        everybody = [json.loads(each) for each in world.share_bytes(json.dumps(mine).encode(), what)]
        found = []
        for said in mine:
            sets = [set(each[said]) for each in everybody]
            names = sorted(set.union(*sets) - set.intersection(*sets))
            for name in names[:_NAMED]:
                has = [name in each for each in sets]
                found.append(f"{name} {said} on rank {has.index(True)} and not on rank {has.index(False)}")
            found += [f"so do {len(names) - _NAMED} more"] if len(names) > _NAMED else []
        return RankError(
            f"The ranks don't train the same in {what}: {'; '.join(found)}. Their gradients would be summed as if they did, and a "
            "checkpoint keeps rank 0's. Freeze, unfreeze, train() and eval() on all ranks alike, not under `if run.is_main:`."
        )
