# SPDX-License-Identifier: Apache-2.0
"""That a relation can't be tried here, or does not apply, and why."""

OF_A_RUN = "a ts.Run trains here, whose updates are not tried out; ts.relations(loss, batch, trains=net) tries the loss"
STEPS_OF_OTHERS = "the steps that followed were those of an optimizer that had not stepped before"
TAKEN_BESIDE = "a thread of the script's own takes the batches from the loader"


class ExperimentNotTriedError(Exception):
    """The message says why."""


class StepsOfOthersError(ExperimentNotTriedError):
    """One training was over and another began, from which it may be tried."""


class RelationNotApplicableError(ExperimentNotTriedError):
    """There is nothing here that the relation speaks of: no evaluation, no criterion with numbers."""


def why_child_raised(error: str | None) -> str:
    """Return why nothing is known where the child of an experiment raised."""
    if error and error.startswith("RunDirectoryError"):
        return OF_A_RUN
    return f"the child raised {error}"
