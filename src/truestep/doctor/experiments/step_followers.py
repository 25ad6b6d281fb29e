# SPDX-License-Identifier: Apache-2.0
"""What a child follows the operations of its step with, beside the change that it makes."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from truestep.doctor.experiments.batch_changes import Change
from truestep.doctor.experiments.buffer_follower import BufferFollower
from truestep.doctor.experiments.follower_base import StepFollower
from truestep.doctor.experiments.operand_follower import OperandFollower
from truestep.doctor.experiments.output_follower import OutputFollower
from truestep.doctor.experiments.result_follower import LayerResultFollower
from truestep.doctor.experiments.value_follower import ValueFollower
from truestep.doctor.experiments.view_follower import ViewFollower


def make_followers(
    change: Change, layers: Mapping[str, nn.Module], parameters: Mapping[str, Tensor]
) -> list[StepFollower]:
    """Return what a child follows its operations with, for what is asked besides."""
    made: dict[str, Callable[[], list[StepFollower]]] = {
        "results": lambda: [LayerResultFollower(layers), ValueFollower(parameters, change.spoiled)],
        "operands": lambda: [OperandFollower(change.flipped, change.chosen)],
        "views": lambda: [ViewFollower(change.apart)],
        "outputs": lambda: [OutputFollower()],
        "buffers": lambda: [BufferFollower(layers, change.by)],
    }
    return made[change.follows]() if change.follows else []
