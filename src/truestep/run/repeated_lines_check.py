# SPDX-License-Identifier: Apache-2.0
"""Lines of an epoch above its batches, which run again where the epoch is gone on with: told of where they change weights."""

import torch
from torch import Tensor, nn

from truestep.core.text_formatting import first_few
from truestep.engine.processes.shards import is_divided_over_ranks
from truestep.run.state import RunState


class RepeatedLinesCheck:
    """Looks at the weights in front of the body of an epoch that was saved in its middle, and where its batches go on."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._before = {
            f"{learner}.{name}": (weight, _place_and_writes(weight), _total(weight))
            for learner, parts in run.context.learners.items()
            for name, weight in parts.module.named_parameters()
            if _is_whole(weight)
        }

    @staticmethod
    def of_epoch_gone_on_with(run: RunState) -> "RepeatedLinesCheck | None":
        """Return a check of the epoch that begins, where a pass of it is to be gone on with."""
        goes_on = any(each.batch and not each.finished for each in run.cursor.streams.values())
        return RepeatedLinesCheck(run) if goes_on else None

    def batches_go_on(self) -> None:
        """Say which weights other values were put into meanwhile; an average that was looked at is away by now."""
        changed = [
            name
            for name, (weight, written, total) in self._before.items()
            if _place_and_writes(weight) != written and not torch.equal(_total(weight), total)
        ]
        if changed:
            self._run.screen.say_once(_SAID.format(names=first_few(changed, 2), step=self._run.cursor.step))


def _is_whole(weight: nn.Parameter) -> bool:
    return not (weight.is_inference() or weight.is_meta or is_divided_over_ranks(weight))


def _place_and_writes(weight: Tensor) -> tuple[int, int]:
    return weight.data_ptr(), weight._version


def _total(weight: Tensor) -> Tensor:
    """Return the sum of the numbers and of their sizes: one pass over them, and no copy."""
    flat = weight.detach()
    return (flat.sum() + flat.abs().sum()).nan_to_num()


_SAID = (
    "the lines of the epoch above run.batches run again in an epoch that is gone on with, here at step {step}, and they put other "
    "values into {names}: this is another training than one that was not stopped. Write what happens once behind the batches of "
    "the epoch before, which no start repeats"
)
