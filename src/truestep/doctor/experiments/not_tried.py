# SPDX-License-Identifier: Apache-2.0
"""That a relation can't be tried here, and why."""


class ExperimentNotTriedError(Exception):
    """The message says why."""
