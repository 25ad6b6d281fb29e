# SPDX-License-Identifier: Apache-2.0
"""Follows what a model puts out to where it meets targets of 0 and 1, and looks at which way the gradient pushes it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from truestep.doctor.experiments.follower_base import StepFollower, frame_line_text, users_frame
from truestep.doctor.experiments.in_process_child import unseen
from truestep.doctor.relations.graph import walk_graph_nodes
from truestep.doctor.runtime.operations import watched_operation_tensors

_LEAST_NUMBERS = 8
_LEAST_SHARE = 0.02  # of the mean size of a gradient


class _OutputTargetPair(NamedTuple):
    output: Tensor
    targets: Tensor
    line: str


class OutputFollower(StepFollower):
    """Within it outputs are followed until a backward.

    It finds:
        pushed: outputs that the gradient pushes away from their targets, down at 1 and up at 0: the line where they meet them, and
            the mean gradient at both.
        num_met: how many outputs met such targets, on the only way to the loss.
    """

    def __init__(self) -> None:
        super().__init__(pushed=[], num_met=0)
        self._met: list[_OutputTargetPair] = []

    def followed(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Look for outputs beside targets."""
        with unseen():
            self._note_output_target_pairs(watched_operation_tensors(args, dict(kwargs)))
        return func(*args, **kwargs)

    def goes_backward(self, roots: Sequence[Any]) -> None:
        """Keep the gradients of what the whole loss is computed from."""
        super().goes_backward(roots)
        self._met = [each for each in self._met if _is_only_way_to_loss(each.output, roots)]
        self.found["num_met"] += len(self._met)
        for each in self._met:
            each.output.retain_grad()

    def went_backward(self) -> None:
        """Look at these gradients, and follow outputs again."""
        for each in self._met:
            found = each.output.grad
            if found is None:
                continue
            are_one = each.targets.reshape(found.shape) == 1
            at_one, at_zero = (float(found[where].mean()) for where in (are_one, ~are_one))
            least = _LEAST_SHARE * float(found.abs().mean())
            if at_one > least and at_zero < -least:
                self.found["pushed"].append((each.line, at_one, at_zero))
        self._met = []
        super().went_backward()

    def _note_output_target_pairs(self, given: Sequence[Tensor]) -> None:
        frame = users_frame()
        if frame is None or not torch.is_grad_enabled():
            return
        for output in given:
            for targets in given:
                if _can_be_output_and_target(output, targets) and _are_binary_targets(targets):
                    self._met.append(_OutputTargetPair(output, targets, frame_line_text(frame)))


def _can_be_output_and_target(output: Tensor, targets: Tensor) -> bool:
    return (
        output.grad_fn is not None
        and output.is_floating_point()
        and not targets.requires_grad
        and not targets.is_complex()
        and output.shape == targets.shape
        and output.numel() >= _LEAST_NUMBERS
    )


def _are_binary_targets(targets: Tensor) -> bool:
    ones = targets == 1
    return bool(ones.any()) and bool((ones | (targets == 0)).all()) and not bool(ones.all())


def _is_only_way_to_loss(output: Tensor, roots: Sequence[Any]) -> bool:
    """Tell whether every way from the loss to a parameter goes through an output, and none to another leaf."""
    beside = walk_graph_nodes(roots, {output.grad_fn})
    return not any(hasattr(node, "variable") for node in beside) and output.grad_fn in walk_graph_nodes(roots)
