# SPDX-License-Identifier: Apache-2.0
"""A model is given back the weights that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import nn

    from truestep.doctor.runtime.history import WatchHistory


class OwnWeightsLoaded(Watcher):
    """What load_state_dict() is given are the model's own tensors, which training has changed meanwhile.

    Why: nothing is restored: state_dict() holds the weights themselves and no copies, so the best ones that were kept
    are the last. Or two names stand for one model: a target that is no copy.

    Bad:
        best = {"epoch": 0, "net": dict(net.state_dict())}
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.load_state_dict(best["net"])  # here

    Good:
        best = {"epoch": 0, "net": copy.deepcopy(net.state_dict())}
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
        net.load_state_dict(best["net"])

    Fix: keep copy.deepcopy(net.state_dict()), or save it to a file at once; make a target by copy.deepcopy(net).
    """

    code = "SAVE015"

    def on_loaded(
        self, history: WatchHistory, module: nn.Module, state: Mapping[str, Any], place: Place
    ) -> Observations:
        """Compare where the numbers lie, of what was loaded and of the model."""
        own = {name: each.data_ptr() for name, each in module.named_parameters() if each.numel()}
        given = {name: state[name].data_ptr() for name in own if hasattr(state.get(name), "data_ptr")}
        if own and given == own and 0 not in own.values() and history.is_trained(module):
            text = f"{history.called(module)} is given its own tensors: nothing is restored."
            yield Observation(place, text, BUG, {"tensors": len(own), "step": history.num_steps})
