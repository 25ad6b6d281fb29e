# SPDX-License-Identifier: Apache-2.0
"""What two learners have in common: a frozen encoder may be in both, a parameter that trains may not."""

from collections.abc import Iterable
from operator import attrgetter

from torch import nn

from truestep.core.errors import OptionError
from truestep.engine.parts import LearnerParts
from truestep.engine.precision import Precision


def check_shared_parameters(
    module: nn.Module, name: str, precision: Precision, others: Iterable[LearnerParts]
) -> None:
    """Raise an OptionError if `module` has parameters of another learner that train, or that it would cast to another type."""
    for other in others:
        owned = {id(parameter): key for key, parameter in other.weights.named}
        shared = [parameter for parameter in module.parameters() if id(parameter) in owned]
        if not shared:
            continue
        trained = [owned[id(parameter)] for parameter in shared if parameter.requires_grad]
        if trained and len(trained) == len(other.weights.named) == len([*module.parameters()]):
            raise OptionError(
                f"run.learner was called again for the module that the learner {other.name!r} has already: two optimizers would "
                "step the same weights. Go on with that learner; or, to have another optimizer, make the run (ts.Run) and the "
                "module again first, as where a notebook's cell is run twice."
            )
        if trained:
            raise OptionError(
                f"{len(trained)} parameters ({', '.join(trained[:4])}) belong to the learner {other.name!r} already; in {name!r} "
                "too they would be stepped by two optimizers. Give shared layers to one learner and update both with one loss: "
                "ts.update([a, b], loss, batch). Layers that do not train may be in both: requires_grad_(False) before."
            )
        if precision.weights != other.precision.weights:
            raise OptionError(
                f"{name!r} (precision {precision.name}) shares {owned[id(shared[0])]} with {other.name!r} (precision "
                f"{other.precision.name}), which keep weights in different types; one tensor has one type. Give both one precision."
            )


_trains = attrgetter("requires_grad")


class SharedParameters:
    """The frozen parameters that are in more than one of all learners; where there are any, each update reads their flags."""

    def __init__(self, learners: Iterable[LearnerParts]) -> None:
        first: dict[int, tuple[str, str]] = {}
        self._found = [
            (weight, name, *first[id(weight)], learner.name)
            for learner in learners
            for name, weight in learner.weights.named
            if first.setdefault(id(weight), (name, learner.name))[1] != learner.name
        ]
        self._weights = [found[0] for found in self._found]

    def __bool__(self) -> bool:
        return bool(self._weights)

    def refuse_unfrozen(self) -> None:
        """Raise an OptionError if one of them trains now: two optimizers would step it."""
        if not any(map(_trains, self._weights)):
            return
        names = [name for weight, _, name, _, _ in self._found if weight.requires_grad]
        owner, other = next(found[3:] for found in self._found if found[0].requires_grad)
        raise OptionError(
            f"{len(names)} parameters ({', '.join(names[:4])}) are in {owner!r} and in {other!r}, which was allowed because they "
            "were frozen, and now they are unfrozen: two optimizers would step them. Freeze them again, or give them to one "
            "learner from the start and update both with one loss: ts.update([a, b], loss, batch)."
        )
