# SPDX-License-Identifier: Apache-2.0
"""Parameters that came into a learner's module after its optimizer was made."""

from typing import TYPE_CHECKING

from truestep.errors import OptionError

if TYPE_CHECKING:
    from truestep.engine.learner import Learner


def refuse_untrained(learner: "Learner") -> None:
    """Raise an OptionError if the module has trainable parameters that no optimizer of the learner can hold.

    Looked at when a learner is first updated and at the beginning of each pass, not at each update.
    """
    known = {id(parameter) for parameter in learner.weights}
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
