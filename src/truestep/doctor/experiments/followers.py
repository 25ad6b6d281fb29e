# SPDX-License-Identifier: Apache-2.0
"""What a child follows the operations of its step with, beside the change that it makes."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from truestep.doctor.experiments.changes import Change
from truestep.doctor.experiments.followed_buffers import FollowedBuffers
from truestep.doctor.experiments.followed_operands import FollowedOperands
from truestep.doctor.experiments.followed_outputs import FollowedOutputs
from truestep.doctor.experiments.followed_results import FollowedResults
from truestep.doctor.experiments.followed_values import FollowedValues
from truestep.doctor.experiments.followed_views import FollowedViews
from truestep.doctor.experiments.step_follower import StepFollower


def followers_of(
    change: Change, layers: Mapping[str, nn.Module], parameters: Mapping[str, Tensor]
) -> list[StepFollower]:
    """Return what a child follows its operations with, for what is asked besides."""
    made: dict[str, Callable[[], list[StepFollower]]] = {
        "results": lambda: [FollowedResults(layers), FollowedValues(parameters, change.spoiled)],
        "operands": lambda: [FollowedOperands(change.flipped, change.chosen)],
        "views": lambda: [FollowedViews(change.apart)],
        "outputs": lambda: [FollowedOutputs()],
        "buffers": lambda: [FollowedBuffers(layers, change.by)],
    }
    return made[change.follows]() if change.follows else []
