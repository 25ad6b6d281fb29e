# SPDX-License-Identifier: Apache-2.0
"""A learner: the handle of what is trained, and with what."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn

from truestep.core.argument_errors import methods_raise_option_errors, raises_option_errors
from truestep.core.errors import NO_GUESS, OptionError
from truestep.core.property_call_errors import refuse_property_calls
from truestep.engine import state as states
from truestep.engine.averaged_block import AveragedBlock
from truestep.engine.batches import Batch, Split
from truestep.engine.evaluation import Values, evaluate
from truestep.engine.learner_as_module_errors import refuse_unpacking, refuse_use_as_module
from truestep.engine.learner_construction import make_learner_parts
from truestep.engine.name_forwarding import (
    get_module_attribute,
    set_module_attribute,
    unknown_attribute,
    warn_of_hidden_attributes,
)
from truestep.engine.optimizers import OptimizerFactory
from truestep.engine.options import LearnerOptions, Modules
from truestep.engine.parts import LearnerParts
from truestep.engine.precision.weight_casting import cast_to_precision
from truestep.engine.result import Update
from truestep.engine.sequential_losses import Accumulating
from truestep.engine.shared_context import LearnerContext
from truestep.engine.splitting import BatchSplitting, MicroBatch
from truestep.engine.unstepped_parameters import warn_if_all_frozen
from truestep.engine.update import Loss, update_together
from truestep.engine.update_call_errors import (
    learner_not_picklable_message,
    note_non_tensor_inputs,
    wrong_evaluate_message,
    wrong_update_message,
)

_HALF = (torch.float16, torch.bfloat16)


@refuse_property_calls("net")
@methods_raise_option_errors("net")
class Learner:
    """One or several modules with what trains them; made by `Run.learner`. An update changes it and nothing else.

    Calling it calls its module, and attributes that it lacks are the module's, to read and to set: `net.parameters()`,
    `net.encoder(x)`, `net.temperature = 0.5`. With several modules each is found by its name or number: `net["encoder"](x)`.
    """

    _parts: LearnerParts
    _alone: list[LearnerParts]
    _splitting: BatchSplitting
    _input_dtype: torch.dtype | None
    _output_dtype: torch.dtype | None

    def __init__(
        self, modules: Modules, optimizer: OptimizerFactory, options: LearnerOptions, context: LearnerContext
    ) -> None:
        parts = make_learner_parts(modules, optimizer, options, context)
        kind = parts.precision.weights
        own: dict[str, Any] = self.__dict__  # setting attributes reaches the module
        own["_parts"] = parts
        own["_alone"] = [parts]
        own["_splitting"] = BatchSplitting(options.micro_batch)
        # Only modes that keep all weights in one other type need their inputs brought to it.
        own["_input_dtype"] = kind if kind != torch.float32 else None
        own["_output_dtype"] = torch.float32 if kind in _HALF else None
        warn_of_hidden_attributes(self)
        warn_if_all_frozen(parts)

    # ------------------------------------------------------------------ the module

    def __call__(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Call the module; inputs are brought to the type of its weights where a mode keeps them in another one."""
        kind = self._input_dtype
        if kind is not None:
            inputs, named_inputs = cast_to_precision(inputs, kind), cast_to_precision(named_inputs, kind)
        try:
            output = self._parts.module(*inputs, **named_inputs)
        except TypeError as error:
            context = self._parts.context
            if not (context.is_busy or context.is_measuring):  # there it is said what the batch is
                note_non_tensor_inputs(error, (*inputs, *named_inputs.values()))
            raise
        return output if self._output_dtype is None else cast_to_precision(output, self._output_dtype)

    def __getattr__(self, name: str) -> Any:
        if "_parts" not in self.__dict__:  # not made yet
            raise AttributeError(name)
        module = self._parts.module
        if name.startswith("_"):  # no loss asks for one, and what changes layers does
            refuse_use_as_module(self.name, sys._getframe(1))
        try:
            return get_module_attribute(self, name)
        except AttributeError:
            if name != "parametrizations":  # which is asked of anything
                refuse_use_as_module(self.name, sys._getframe(1))
            if hasattr(type(module), name) or name.startswith("__"):
                raise  # a property of the module that failed, a protocol that somebody asks for
            raise AttributeError(unknown_attribute(self, name), name=name, obj=NO_GUESS) from None

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type["Learner"]:
            """Answer isinstance: what takes a module or parameters, and would not find them here, is refused."""
            refuse_use_as_module(self.name, sys._getframe(1))
            return type(self)

    def __setattr__(self, name: str, value: Any) -> None:
        set_module_attribute(self, name, value)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be pickled or copied: a learner is of its run."""
        raise OptionError(learner_not_picklable_message(self.name))

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *dir(self._parts.module)})

    def __getitem__(self, key: str | int) -> nn.Module:
        """Return a part of a learner made of a dict or list of modules: `net["encoder"](x)`."""
        if type(key) is int and not torch.compiler.is_compiling():  # what goes through parameters begins at 0
            refuse_use_as_module(self.name, sys._getframe(1))
            refuse_unpacking(self.name, key, sys._getframe(1))
        part: nn.Module = self.module[key]  # type: ignore[index]
        return part

    def __repr__(self) -> str:
        return repr(self._parts)

    @property
    def module(self) -> nn.Module:
        """What is trained; several modules as one `nn.ModuleDict` or `nn.ModuleList`."""
        return self._parts.module

    @property
    def name(self) -> str:
        """What it is called in metrics and checkpoints."""
        return self._parts.name

    # ------------------------------------------------------------------ training

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers that its factory made."""
        return self._parts.optimizers

    @property
    def learning_rate(self) -> float:
        """The learning rate of the first group of the first optimizer."""
        return self._parts.learning_rate

    @property
    def started(self) -> bool:
        """Whether this learner trains yet: `starts_at` batches have been counted."""
        return self._parts.started

    @raises_option_errors("net.update", wrong_update_message)
    def update(
        self,
        loss: Loss,
        batch: Batch,
        *,
        micro_batch: MicroBatch = None,
        split: Split | int | None = None,
        decomposable: bool = True,
    ) -> Update:
        """Make one update with the gradient of the mean of `loss(batch)`; nothing but this learner changes.

        Args:
            loss: a function of a batch that returns one loss per example, or `ts.weighted(...)`; it may be called
                several times and must have no side effects.
            batch: any structure of tensors; `split` says how to cut one without a leading dimension.
            micro_batch: the largest number of examples computed at once, "auto", or sizes that add up; the learner's
                own by default. It changes the result by rounding only.
            split: `ts.Split(count, take)`, or the dimension along which the examples lie.
            decomposable: False for a loss of the whole batch (contrastive), which must not be split.

        Raises:
            LossError: the loss has no gradient, the wrong shape, or (NonFiniteError) is NaN or infinite.
            BatchError: the batch is empty, or has to be split and can't be.
        """
        # the usual update makes no objects: its options were read when the learner was made
        if micro_batch is None and split is None and decomposable:
            return update_together(self._alone, loss, batch, self._splitting)[0]
        own = self._parts.options.micro_batch
        # a loss of the whole batch is never cut, whatever size the learner usually takes
        chosen = micro_batch if micro_batch is not None or not decomposable else own
        return update_together(self._alone, loss, batch, BatchSplitting(chosen, split, decomposable))[0]

    def accumulating(self, *, weight: float | None = None) -> Accumulating:
        """Make one update out of losses that are computed one after another in a `with` block.

        Losses per example are averaged over all of them, or divided by `weight` where that is given (the total number of tokens,
        say). A scalar says how many examples it is the mean of, unless it is the only one; with `weight=1` scalars add up as they
        are. A forward must follow inside the block.

            with net.accumulating() as update:
                for part in parts:
                    update.backward(loss(part))  # or: update.backward(loss(part).mean(), weight=len(part))
        """
        return Accumulating(self._parts, weight)

    # ------------------------------------------------------------------ looking

    @raises_option_errors("net.evaluate", wrong_evaluate_message)
    def evaluate(self, values: Values, data: Any, *, metric: Any = None, averaged: bool = False) -> Any:
        """Average `values(batch)` over `data` in evaluation mode, without gradients.

        Args:
            values: returns one value per example, `ts.weighted(...)`, or a dict of such vectors; with `metric` whatever
                `metric.update` takes.
            data: what `run.data` returned, or any iterable of batches.
            metric: a torchmetrics object (or any with `update`, `compute` and `reset`).
            averaged: use the moving average of the weights (`ema=`).

        Returns:
            A float, a dict of floats where several values are averaged, or what `metric.compute` gives.
        """
        if averaged:
            with self.averaged():
                return evaluate(self._parts, values, data, metric)
        return evaluate(self._parts, values, data, metric)

    def averaged(self) -> AbstractContextManager[nn.Module]:
        """Put the moving average in the place of the weights within a `with` block, and the weights back behind it."""
        if self._parts.average is None:
            raise OptionError(
                f"{self.name!r} keeps no average of its weights; ask for one with run.learner(..., ema=ts.EMA())."
            )
        return AveragedBlock(self._parts)

    # ------------------------------------------------------------------ state

    def training_state(self) -> dict[str, Any]:
        """Return everything that training on from here needs, as a tree of tensors and JSON values."""
        return states.learner_state(self._parts)

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Take over what `training_state` returned; a CheckpointError if it is not this learner's, before anything changes."""
        # all of it is checked before any is loaded, so that a refused state leaves the learner as it was
        states.check_learner_state(self._parts, state)
        states.load_learner_state(self._parts, state)


def update(
    learners: Sequence[Learner],
    loss: Loss,
    batch: Batch,
    *,
    micro_batch: MicroBatch = None,
    split: Split | int | None = None,
    decomposable: bool = True,
) -> list[Update]:
    """Make one update of several learners with the gradient of one loss; return theirs in order.

    Each learner clips, scales and steps by itself: an overflow in one leaves the others' update as it is. The options
    are those of `Learner.update`.
    """
    if (
        isinstance(learners, Learner)
        or not isinstance(learners, list | tuple)
        or not learners
        or not all(isinstance(each, Learner) for each in learners)
    ):
        raise OptionError(
            "ts.update takes a list of what run.learner returned: ts.update([a, b], loss, batch). A single learner has its own: "
            "net.update(loss, batch)."
        )
    parts = [learner._parts for learner in learners]
    if micro_batch is None and decomposable:
        micro_batch = _common_micro_batch(parts)
    return update_together(parts, loss, batch, BatchSplitting(micro_batch, split, decomposable))


def _common_micro_batch(learners: Sequence[LearnerParts]) -> MicroBatch:
    """Return what suits all learners: "auto" where one leaves it to memory, else the smallest of their own."""
    asked = [learner.options.micro_batch for learner in learners]
    # one forward serves all of them, so the one that asks for the least memory decides
    if "auto" in asked:
        return "auto"
    numbers = [size for size in asked if isinstance(size, int)]
    return min(numbers) if numbers else next((sizes for sizes in asked if sizes is not None), None)
