# SPDX-License-Identifier: Apache-2.0
"""Lines of an epoch above its batches, which run again where the epoch is gone on with: told of where they change weights."""

import torch
from torch import Tensor

from truestep.core.tensor_bytes import tensor_version
from truestep.core.text_formatting import first_few
from truestep.run.state import RunState
from truestep.run.unsaved_models import is_plain_tensor


class RepeatedLinesCheck:
    """Looks at the weights in front of the body of an epoch that was saved in its middle, and where its batches go on."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._before = {
            f"{learner}.{name}": (weight, _place_and_writes(weight), _total(weight))
            for learner, parts in run.context.learners.items()
            for name, weight in parts.module.named_parameters()
            if is_plain_tensor(weight) and _can_be_summed(weight)
        }

    def batches_go_on(self) -> None:
        """Say which weights other values were put into meanwhile; an average that was looked at is away by now."""
        changed = [
            name
            for name, (weight, written, total) in self._before.items()
            if _place_and_writes(weight) != written and not torch.equal(_total(weight), total)
        ]
        if changed:
            self._run.screen.say_once(_SAID.format(names=first_few(changed, 2), step=self._run.cursor.step))


def _can_be_summed(weight: Tensor) -> bool:
    """Whether torch adds up its numbers: not those of a byte, as of quantized weights."""
    return (weight.is_floating_point() or weight.is_complex()) and weight.itemsize > 1


def _place_and_writes(weight: Tensor) -> tuple[int, int]:
    return weight.data_ptr(), tensor_version(weight)


def _total(weight: Tensor) -> Tensor:
    """Return the sum of the numbers and of their sizes: one pass over them, and no copy."""
    flat = weight.detach()
    return (flat.sum() + flat.abs().sum()).nan_to_num()


_SAID = (
    "the lines of the epoch above run.batches run again in an epoch that is gone on with, here at step {step}, and they put other "
    "values into {names}: this is another training than one that was not stopped. Write what happens once behind the batches of "
    "the epoch before, which no start repeats"
)
