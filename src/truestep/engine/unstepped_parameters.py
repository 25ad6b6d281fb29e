# SPDX-License-Identifier: Apache-2.0
"""Parameters that no optimizer of a learner steps, and that are to train nevertheless."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from truestep.core.errors import LossError, OptionError
from truestep.core.user_frames import warn_user
from truestep.engine.optimizers import optimizer_parameters

if TYPE_CHECKING:
    from truestep.engine.parts import LearnerParts


def refuse_untrained(learner: "LearnerParts") -> None:
    """Raise an OptionError if the module has trainable parameters that no optimizer of the learner can hold.

    Looked at when a learner is first updated and at the beginning of each pass, not at each update.
    """
    _refuse_foreign_parameters(learner)
    known = {id(parameter) for parameter in learner.weights.parameters}
    strangers = [
        name
        for name, parameter in learner.module.named_parameters()
        if parameter.requires_grad and id(parameter) not in known
    ]
    if strangers:
        raise OptionError(
            f"{len(strangers)} parameters of {learner.name!r} ({', '.join(strangers[:4])}) are not those it was made with: a layer "
            "was replaced or added afterwards. The optimizer holds the old ones, so these would never change. Change the module "
            "first and give it to run.learner then; to leave new ones as they are, set requires_grad_(False)."
        )


def _refuse_foreign_parameters(learner: "LearnerParts") -> None:
    """Raise an OptionError if an optimizer was given parameters, later on, that the module does not have."""
    known = {id(parameter) for parameter in learner.weights.stepped}
    strangers = [each for each in optimizer_parameters(*learner.optimizers) if id(each) not in known]
    if strangers:
        raise OptionError(
            f"The optimizer of {learner.name!r} was given {len(strangers)} parameters that its module does not have (shapes "
            f"{[tuple(each.shape) for each in strangers[:4]]}): no checkpoint would keep them. Put them into the module, or give "
            "run.learner both, run.learner([model, other], optimizer)."
        )


def warn_if_all_frozen(learner: "LearnerParts") -> None:
    """Warn of a learner whose parameters are all frozen: its updates would be refused."""
    weights = learner.weights.parameters
    if not any(weight.requires_grad for weight in weights):
        warn_user(
            f"All {len(weights)} parameters of the learner {learner.name!r} are frozen (requires_grad is False), so net.update "
            "would find nothing to train. Unfreeze what is to be trained before run.learner, ts.unfreeze(module.head), or keep a "
            "module that is only called out of run.learner."
        )


def note_frozen_learners(error: LossError, learners: "Sequence[LearnerParts]") -> None:
    """Note beside an error about a loss which learners have no parameter left that trains."""
    for learner in learners:
        weights = learner.weights.parameters
        if not any(weight.requires_grad for weight in weights):
            error.add_note(
                f"truestep: all {len(weights)} parameters of {learner.name!r} are frozen now (requires_grad is False), though its "
                "optimizer holds them. Let those train again that are to: ts.unfreeze(net), or net.requires_grad_(True)."
            )


_trains = attrgetter("requires_grad")


class LeftOutParameters:
    """The parameters that no optimizer was given, since they were frozen; once one is unfrozen, it would never change.

    Most learners have none; otherwise each update reads one flag of each.
    """

    def __init__(self, learners: "Sequence[LearnerParts]") -> None:
        self._learners = learners
        self._find_left_out()

    def __bool__(self) -> bool:
        return bool(self._weights)

    def _find_left_out(self) -> None:
        held = {id(each) for learner in self._learners for each in optimizer_parameters(*learner.optimizers)}
        self._parameters = [
            (learner.name, name, weight)
            for learner in self._learners
            for (name, weight), stepped in zip(learner.weights.named, learner.weights.stepped, strict=True)
            if id(stepped) not in held
        ]
        self._weights = [weight for _, _, weight in self._parameters]

    def refuse_unfrozen(self) -> None:
        """Raise an OptionError if one of them has been unfrozen, and has not been given to the optimizer since."""
        if not any(map(_trains, self._weights)):
            return
        self._find_left_out()
        # Looked for again: the user may have given it to the optimizer meanwhile (add_param_group).
        if names := [(owner, name) for owner, name, weight in self._parameters if weight.requires_grad]:
            raise OptionError(
                f"{len(names)} parameters of {names[0][0]!r} ({', '.join(name for _, name in names[:4])}) were frozen when the "
                "learner was made, its optimizer was not given them, and now they are unfrozen: they would never change. Give "
                "the factory all parameters (frozen ones are left alone until they are unfrozen): lambda p: torch.optim.AdamW(p)."
            )
