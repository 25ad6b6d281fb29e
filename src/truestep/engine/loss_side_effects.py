# SPDX-License-Identifier: Apache-2.0
"""What a loss must not do to the update that calls it: backward(), zero_grad(), a step, or going through a used graph."""

from collections.abc import Sequence
from operator import attrgetter, is_

import torch
from torch import Tensor
from torch.optim import Optimizer

from truestep.core.errors import LossError
from truestep.engine.batches import Batch, is_pair_batch, map_batch_tensors
from truestep.engine.optimizers import optimizer_parameters
from truestep.engine.parts import LearnerParts
from truestep.instrument.step_listeners import BEFORE_STEPS

_gradient = attrgetter("grad")


class LossSideEffects:
    """Looks whether a loss changed gradients or stepped an optimizer of its learners."""

    def __init__(self, learners: Sequence[LearnerParts]) -> None:
        self._learners = learners
        self._weights = [weight for learner in learners for weight in learner.weights.parameters]
        self._refuse = self._refuse_step
        self._none = [None] * len(self._weights)
        self._before: tuple[list[Tensor | None], list[int]] | None = None

    def begin(self, *, cleared: bool) -> None:
        """A loss is about to be called; `cleared`: no parameter has a gradient yet. Steps are refused until `end`."""
        # Without gradients there is nothing to note: any that is there afterwards was made by the loss.
        self._before = None if cleared else self._gradients_and_versions()
        BEFORE_STEPS[self] = self._refuse

    def end(self) -> None:
        """The loss has returned, or raised."""
        BEFORE_STEPS.pop(self, None)

    def check(self) -> None:
        """Raise a LossError if the gradients are not as they were at `begin`."""
        if self._before is None:
            if [*map(_gradient, self._weights)] != self._none:
                raise LossError(_CHANGED_GRADIENTS)
            return
        # by identity and by version: a loss may replace a gradient, or write to it where it stands
        (gradients, versions), self._before = self._before, None
        now, versions_now = self._gradients_and_versions()
        if versions != versions_now or not all(map(is_, gradients, now)):
            raise LossError(_CHANGED_GRADIENTS)

    def _gradients_and_versions(self) -> tuple[list[Tensor | None], list[int]]:
        """Return the gradients, and how often each was written to."""
        gradients: list[Tensor | None] = list(map(_gradient, self._weights))
        return gradients, [gradient._version for gradient in gradients if gradient is not None]

    def _refuse_step(self, optimizer: Optimizer, *_: object) -> None:
        # made only when somebody steps, which hardly any loss does
        owners = {
            id(parameter): learner.name
            for learner in self._learners
            for parameter in (*learner.weights.parameters, *learner.weights.stepped)
        }
        stepped = [owners.get(id(each)) for each in optimizer_parameters(optimizer)]
        if name := next(filter(None, stepped), None):
            raise step_in_loss_error(optimizer, name)


def step_in_loss_error(optimizer: Optimizer, name: str) -> LossError:
    """Return the error for a loss that steps an optimizer which holds parameters of the learner `name`."""
    return LossError(
        f"The loss function stepped an optimizer ({type(optimizer).__name__}) that holds parameters of {name!r}: they would be "
        "stepped twice, or between two parts of a batch. Return the loss and leave backward(), step() and zero_grad() out: "
        "net.update(loss, batch) does them."
    )


_CHANGED_GRADIENTS = (
    "The loss function changed the gradients of the parameters that are being updated: it called backward() or zero_grad(), "
    "and the update would use what it left. Return the loss and leave backward(), step() and zero_grad() out: "
    "net.update(loss, batch) does them (inside accumulating(): update.backward(loss)). For a gradient that the loss itself needs "
    "write torch.autograd.grad(value, inputs), which leaves .grad alone."
)


def refuse_batch_with_graph(batch: Batch, why: str) -> None:
    """Raise a LossError if a tensor of the batch was computed from parameters: its graph can be gone through once only."""
    _refuse_graph(batch, _reused_graph_message(why))


def refuse_graph_without_example(batch: Batch) -> None:
    """Raise a LossError if a batch that leaves this process no example was computed from parameters: what is lent has no graph."""
    _refuse_graph(batch, _NO_EXAMPLE_OF_GRAPH)


def _refuse_graph(batch: Batch, message: str) -> None:
    def refuse_tensor_with_graph(tensor: Tensor) -> Tensor:
        # a leaf, as data is, has no graph to go through
        if tensor.grad_fn is not None:
            raise LossError(message)
        return tensor

    if is_pair_batch(batch):
        refuse_tensor_with_graph(batch[0])
        refuse_tensor_with_graph(batch[1])
    else:
        map_batch_tensors(refuse_tensor_with_graph, batch)


def reused_graph_error(error: BaseException, why: str | None) -> LossError | None:
    """Return a clear error if `error` says that a graph was gone through twice; `why` the update does so itself."""
    # torch has no class of its own for it, so its words are asked
    if "backward through the graph a second time" not in str(error):
        return None
    return LossError(_reused_graph_message(why) if why else _USED_GRAPH)


def anomaly_error(error: BaseException) -> LossError | None:
    """Return a clear error if torch's anomaly mode stopped a backward of a scaled loss at a NaN."""
    if not (torch.is_anomaly_enabled() and "returned nan values" in str(error)):
        return None
    return LossError(
        "torch.autograd.set_detect_anomaly(True) stopped this backward at its first NaN. In float16 the loss is scaled, gradients "
        "overflow until the scale fits, and such an update is skipped: so a NaN is no anomaly here. Take the mode off, or look for "
        'the operation with precision="float32", where nothing is scaled.'
    )


def _reused_graph_message(why: str) -> str:
    return (
        f"The loss uses a graph that was made before this update (a network's output, computed outside of the loss), and {why}: "
        "the update goes back through it more than once, and torch keeps it for one time. Compute it inside the loss, from what "
        "the batch holds, or update with micro_batch=None; where its network is not trained by this update, detach() it."
    )


_NO_EXAMPLE_OF_GRAPH = (
    "The batch holds a graph that was made before this update (a network's output, computed outside of the loss), and this process "
    "has no example of the batch: it calls the loss with one of another process, whose graph is there alone. Compute it inside the "
    "loss, from what the batch holds, or leave short batches out: run.data(..., drop_last=True)."
)
_USED_GRAPH = (
    "The loss depends on a graph that a backward has gone through already, and torch keeps it for one time. Either the loss "
    "itself calls backward(), or it uses something computed before an earlier update: a state carried from batch to batch, or the "
    "output of another network without detach(). Leave backward() out, carry the state as state.detach(), and give "
    "fake.detach() to the learner that does not train the network it came from."
)
