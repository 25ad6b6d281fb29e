# SPDX-License-Identifier: Apache-2.0
"""A batch that holds what the learner computed, with its graph, beside a loss that calls the learner: both get the gradient."""

from collections.abc import Collection
from typing import Any

from torch import Tensor

from truestep.core.nested_structures import batch_leaves
from truestep.core.user_frames import warn_user
from truestep.engine.batches import Batch
from truestep.engine.parts import LearnerParts


def warn_of_graph_in_batch(
    names: str, learners: Collection[LearnerParts], batch: Batch, values: Tensor
) -> None:
    """Warn of the tensors of a batch through which a loss reaches weights that it reaches without them, too.

    Outputs that were computed before the update and are all that its loss is made of are another way to write it.
    """
    held = {
        each.grad_fn: (path, each)
        for path, each in batch_leaves(batch, "batch")
        if isinstance(each, Tensor) and each.grad_fn is not None
    }
    if not held or values.grad_fn is None:
        return
    own = {id(weight) for learner in learners for weight in learner.weights.parameters}
    beside, met = _graph_leaves(values.grad_fn, held)
    if own.isdisjoint(beside):
        return
    for node in met:
        if not own.isdisjoint(_graph_leaves(node)[0]):
            path, tensor = held[node]
            warn_user(
                f"{path} of shape {tuple(tensor.shape)} was computed by {names} before this update and has its graph, so the "
                "gradient goes through it as well as through what the loss computes: of an old log-probability, a value or an "
                "advantage, both may cancel, and nothing is learnt. If it is to be a constant, write .detach() where it is made."
            )
            return


def _graph_leaves(node: Any, stops: Collection[Any] = ()) -> tuple[set[int], list[Any]]:
    """Return the ids of the leaves of a graph that do not lie behind `stops` alone, and those of the stops that it comes to."""
    leaves: set[int] = set()
    met = []
    waiting, seen = [node], {node}
    while waiting:
        current = waiting.pop()
        if current in stops:
            met.append(current)
            continue
        if type(current).__name__ == "AccumulateGrad":
            leaves.add(id(current.variable))
        fresh = {before for before, _ in current.next_functions if before is not None} - seen
        seen |= fresh
        waiting += fresh
    return leaves, met
