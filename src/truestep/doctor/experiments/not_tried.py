# SPDX-License-Identifier: Apache-2.0
"""That a relation can't be tried here, or does not apply, and why."""


class ExperimentNotTriedError(Exception):
    """The message says why."""


class RelationNotApplicableError(ExperimentNotTriedError):
    """There is nothing here that the relation speaks of: no evaluation, no criterion with numbers."""
