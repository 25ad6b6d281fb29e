# SPDX-License-Identifier: Apache-2.0
"""What a child follows the operations of its step with, beside the change that it makes."""

from collections.abc import Mapping

from torch import Tensor, nn

from truestep.doctor.experiments.changes import Change
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
    if change.follows_results:
        return [FollowedResults(layers), FollowedValues(parameters, change.spoiled)]
    if change.follows_operands:
        return [FollowedOperands(change.flipped, change.chosen)]
    if change.follows_views:
        return [FollowedViews(change.apart)]
    return [FollowedOutputs()] if change.follows_outputs else []
