# SPDX-License-Identifier: Apache-2.0
"""A loss function computed on altered batches, always from the same state, with noise made symmetric."""

import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from traceback import walk_stack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from truestep.core.errors import LossError
from truestep.core.random_streams import host_rng_states, set_host_rng_states
from truestep.core.text_formatting import a_type
from truestep.doctor.relations.examples import Examples
from truestep.doctor.relations.gradients import (
    GradientComparison,
    Gradients,
    compare_gradients,
    gradient_tolerance,
    merge_shared_gradients,
)
from truestep.doctor.relations.graph import walk_graph_nodes
from truestep.doctor.relations.mixing import Mixing, RowSumRecorder, distinct_batch_size, first_mixing
from truestep.doctor.relations.noise import SEED, SymmetricNoise
from truestep.doctor.relations.trials.named import modules_referenced_by
from truestep.doctor.relations.trials.state import KeptState
from truestep.doctor.relations.trials.trained import Trained, with_module_names
from truestep.doctor.relations.verdict import Verdict

_HALF_PRECISION = 1e-4  # the rounding of float16 and bfloat16 is above, that of float32 far below
_SHARE_OF_HALF = 0.05


@dataclass(frozen=True, eq=False)
class TrialOutcome:
    """What a loss function gave on a batch.

    Attributes:
        value: the loss, of several values their mean.
        gradients: by parameter; those of parameters with hooks of their own are left out.
        values: one loss for each example, detached; None where the function gave a scalar.
        reached: the leaves of the graph that need gradients.
    """

    value: float
    gradients: Gradients
    values: Tensor | None
    reached: dict[int, Tensor] = field(default_factory=dict)


class Trials:
    """Computes the loss on altered batches; between two of them everything is put back.

    Attributes:
        examples: the batch, with what holds its examples.
        trained: the parameters by name.
        frozen: whether buffers keep their values while the loss is computed.
        seed: of the noise.
        draws: whether the loss draws random numbers.
        has_buffers: whether it calls modules with buffers.
    """

    def __init__(self, loss: Callable[[Any], Any], examples: Examples, trained: Trained) -> None:
        self.loss = loss
        self.examples = examples
        self.trained = trained
        self.frozen = False
        self.seed = SEED
        self.draws = False
        self.rounding = 0.0
        self.has_buffers = False
        self._random_states = host_rng_states()  # what is imported late may draw, too
        self._found = KeptState(
            trained.parameters.values(), [*trained.modules.values(), *modules_referenced_by(loss)]
        )
        self._start = self._found
        self._whole: dict[tuple[bool, int], TrialOutcome] = {}
        self._mixing: dict[bool, Mixing | None] = {}
        self._verdicts: dict[tuple[str, bool], Verdict] = {}
        self.outermost: list[nn.Module] = []
        self.repeated = 0.0
        self.hooked: tuple[str, ...] = ()

    def begin(self) -> None:
        """Compute the loss once, so that what it makes late is made, and twice more, to see what repeats."""
        with self._keeping_called_modules():
            self._loss_and_gradients(self.examples.fresh(), self.examples.count)
        self._start = self._found.current_state()
        self.has_buffers = bool(self._start.buffers)
        self.trained = with_module_names(self.trained, self.outermost)
        self.hooked = tuple(name for name, each in self.trained.parameters.items() if each._backward_hooks)
        again = self.gradients(self.examples.fresh(), self.examples.count)
        self.repeated = compare_gradients(again.gradients, self.whole.gradients).difference

    def end(self) -> None:
        """Leave everything as it was found."""
        self._found.put_back()
        set_host_rng_states(self._random_states)

    @property
    def whole(self) -> TrialOutcome:
        """What the batch as it is gives."""
        key = (self.frozen, self.seed)
        if key not in self._whole:
            self._whole[key] = self.gradients(self.examples.fresh(), self.examples.count)
        return self._whole[key]

    @property
    def called_modules(self) -> list[nn.Module]:
        """The modules that are trained or were called."""
        return self._found.modules

    @property
    def tolerance(self) -> float:
        """How far apart gradients may be that are the same."""
        return gradient_tolerance(self.rounding, self.repeated)

    @property
    def is_coarse(self) -> bool:
        """Whether the loss computes in half precision, which hides small changes."""
        return self.rounding > _HALF_PRECISION

    def compare(self, first: Gradients, second: Gradients) -> GradientComparison:
        """Return how far apart two gradients are."""
        return compare_gradients(first, second, least_share=self.least_share)

    @property
    def least_share(self) -> float:
        """The share of the gradient below which a parameter's is taken for rounding."""
        return _SHARE_OF_HALF if self.is_coarse else 1e-3

    def gradients(self, batch: Any, count: int) -> TrialOutcome:
        """Return the loss and the gradients on a batch of so many examples."""
        found: TrialOutcome = self._run_trial(batch, count, lambda: self._loss_and_gradients(batch, count))
        return found

    def value(self, batch: Any, count: int) -> float:
        """Return the loss on a batch of so many examples."""
        found: float = self._run_trial(
            batch, count, lambda: _scalar_loss(_loss_values(self.loss(batch))).item()
        )
        return found

    def attempt(self, batch: Any, count: int) -> "TrialOutcome | str":
        """Return the loss and the gradients on a batch, or the error with which it fails."""
        try:
            outcome = self.gradients(batch, count)
        except Exception as error:  # noqa: BLE001  # what the user's code raises is the finding
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return outcome if math.isfinite(outcome.value) else f"the loss is {outcome.value}"

    def run(self, compute: Callable[[Any], object]) -> None:
        """Compute something on the batch, and put everything back."""
        self._run_trial(None, self.examples.count, lambda: compute(self.examples.fresh()))

    def once(self, relation: str, found: Callable[["Trials"], Verdict]) -> Verdict:
        """Return a verdict that several relations ask for."""
        key = (relation, self.frozen)
        if key not in self._verdicts:
            self._verdicts[key] = found(self)
        return self._verdicts[key]

    @contextmanager
    def other_noise(self, seed: int) -> Iterator[None]:
        """Within this the loss draws other random numbers."""
        before, self.seed = self.seed, seed
        try:
            yield
        finally:
            self.seed = before

    @contextmanager
    def moved(self, steps: dict[str, Tensor]) -> Iterator[None]:
        """Within this parameters are moved by these steps; afterwards they are what they were."""
        with torch.no_grad():
            for name, step in steps.items():
                self.trained.parameters[name].add_(step)
        try:
            yield
        finally:
            self._start.put_back()

    def mixing(self) -> Mixing | None:
        """Return where the examples first mix."""
        if self.frozen not in self._mixing:
            self._mixing[self.frozen] = self._find_mixing()
        return self._mixing[self.frozen]

    def layer_names(self) -> dict[str, nn.Module]:
        """Return the modules that are trained or called, by name."""
        tops = list(self.trained.modules.items()) or [("", each) for each in self.called_modules[:1]]
        return {
            f"{name}.{key}".strip("."): module for name, top in tops for key, module in top.named_modules()
        }

    def _find_mixing(self) -> Mixing | None:
        whole = self.examples
        tensors = [
            *self.trained.parameters.values(),
            *(each for each in whole.leaves.values() if hasattr(each, "shape")),
        ]
        sizes = [
            size for each in tensors for axis, size in enumerate(each.shape) if axis or size != whole.count
        ]
        count = distinct_batch_size(whole.count, sizes)
        if count < 2:
            return None
        rows = list(range(count))
        frozen = self._start.buffers if self.frozen else ()
        records = []
        for changed in (rows, [0, 2 % count, *rows[2:]]):
            batch, record = whole.take(changed), RowSumRecorder(count, self.layer_names(), frozen=frozen)
            try:
                self._run_trial(batch, count, partial(self._record_loss, batch, record))
            except Exception:  # noqa: BLE001  # the number of examples may be fixed in the user's code
                return None
            records.append(record.calls_that_reach())
        return first_mixing(records[0], records[1], 1)

    def _record_loss(self, batch: Any, record: RowSumRecorder) -> None:
        with record:
            loss = _scalar_loss(_loss_values(self.loss(batch)))
        record.reaches([loss])

    def _run_trial(self, batch: Any, count: int, compute: Callable[[], Any]) -> Any:
        buffers = self._start.buffers if self.frozen else ()
        tensors = self.trained.parameters.values()
        noise = SymmetricNoise(count, frozen=buffers, tensors=tensors, seed=self.seed)
        try:
            with noise, torch.enable_grad(), self._with_buffers_kept():
                return compute()
        finally:
            self.rounding = max(self.rounding, noise.coarsest)
            self.draws |= noise.has_drawn
            self._start.put_back()

    @contextmanager
    def _with_buffers_kept(self) -> Iterator[None]:
        """Have modules keep their buffers, where they are frozen, although another tensor is assigned."""
        if not self.frozen:
            yield
            return
        handle = register_module_forward_hook(lambda module, *_: self._start.put_back_buffers_of(module))
        try:
            with _without_hook_warnings():
                yield
        finally:
            handle.remove()

    def _loss_and_gradients(self, batch: Any, count: int) -> TrialOutcome:
        given = _loss_values(self.loss(batch))
        loss = _scalar_loss(given)
        if not loss.requires_grad:
            raise LossError(
                "The loss needs no gradient: nothing that is trained reaches it, or it was computed under no_grad."
            )
        reached = graph_leaves(loss)
        names = [name for name in self.trained.parameters if name not in self.hooked]
        found = _compute_gradients(loss, [self.trained.parameters[name] for name in names])
        kept = merge_shared_gradients(
            {name: None if each is None else each.detach() for name, each in zip(names, found, strict=True)},
            self.trained.parameters,
        )
        per_example = isinstance(given, Tensor) and given.ndim > 0 and len(given) == count
        return TrialOutcome(loss.item(), kept, given.detach() if per_example else None, reached)

    def _record_module(self, module: nn.Module) -> None:
        self._found.keep(module)
        if module not in self.outermost and not _is_inside_another(module):
            self.outermost.append(module)

    @contextmanager
    def _keeping_called_modules(self) -> Iterator[None]:
        """Keep each module when it is first called, before it changes."""
        handle = register_module_forward_pre_hook(lambda module, _: self._record_module(module))
        try:
            count = self.examples.count
            noise = SymmetricNoise(count, tensors=self.trained.parameters.values())
            with noise, torch.enable_grad(), _without_hook_warnings():
                yield
        finally:
            handle.remove()


@contextmanager
def _without_hook_warnings() -> Iterator[None]:
    """Have compiled modules not warn of hooks that are ours."""
    # put there by hand: `filterwarnings` would have warnings that were shown once come again
    about_hooks = re.compile(r"Using `torch\.compile\(module\)` when there are global hooks")
    unsaid: Any = ("ignore", about_hooks, UserWarning, None, 0)
    warnings.filters.insert(0, unsaid)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        with suppress(ValueError):  # a block of the loss's own that restores the filters
            warnings.filters.remove(unsaid)  # type: ignore[attr-defined]


def _is_inside_another(module: nn.Module) -> bool:
    """Whether another module's call is running."""
    calls = (frame for frame, _ in walk_stack(sys._getframe(2)) if frame.f_code.co_name == "_call_impl")
    return any(frame.f_locals.get("self") is not module for frame in calls)


def graph_leaves(loss: Tensor) -> dict[int, Tensor]:
    """Return the leaves of a graph that need gradients."""
    leaves = (getattr(node, "variable", None) for node in walk_graph_nodes([loss]))
    return {id(each): each for each in leaves if isinstance(each, Tensor)}


def _compute_gradients(loss: Tensor, parameters: list[Tensor]) -> list[Tensor | None]:
    try:
        return list(torch.autograd.grad(loss, parameters, allow_unused=True))
    except RuntimeError as error:
        if "not compatible" not in str(error) or "heckpoint" not in str(error):
            raise
    # reentrant checkpoints know backward() alone
    for each in parameters:
        each.grad = None
    loss.backward()  # type: ignore[no-untyped-call]
    return [each.grad for each in parameters]


def _loss_values(given: Any) -> Any:
    """Return what a loss function gave: a tensor, or values with weights."""
    weights = getattr(given, "weights", None)
    values = getattr(given, "values", None) if hasattr(given, "weights") else given
    if isinstance(values, Tensor) and isinstance(weights, Tensor):
        return (values * weights).sum() / weights.sum()
    if isinstance(values, Tensor) and (values.is_floating_point() or values.is_complex()):
        return values
    raise LossError(
        f"ts.relations needs a loss that returns a tensor, a scalar or a value for each example, got {a_type(given)}. "
        "Of an output that holds the loss return that alone, as in `return model(**batch).loss`."
    )


def _scalar_loss(values: Any) -> Tensor:
    scalar: Tensor = values if values.ndim == 0 else values.mean()
    return scalar
