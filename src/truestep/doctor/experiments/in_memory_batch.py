# SPDX-License-Identifier: Apache-2.0
"""A batch that no loader hands over: tensors that are in memory before a step and that the step computes its loss from."""

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils.data.dataloader import _BaseDataLoaderIter

from truestep.core.user_frames import is_library_file
from truestep.doctor.experiments.batch_leaf_usage import (
    address_of,
    all_parameters_and_buffers,
    tensors_within,
)
from truestep.doctor.experiments.in_process_child import ChildLife
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.experiments.skip_reasons import ExperimentNotTriedError
from truestep.doctor.forks.fork import ContinuingChild
from truestep.doctor.relations.noise import SymmetricNoise
from truestep.doctor.runtime.wrapping import WatchWrappers

# with these a batch is cut out of what lies in memory, so that its rows are not the batch's
_CUT = frozenset({"__getitem__", "index_select", "split", "chunk", "narrow", "unbind", "take", "gather"})
_MOST_TENSORS = 12
Call = Callable[..., Any]
Layer = Callable[[Call], Call]


class MemoryBatchChild:
    """A child that goes on to the next step, and tells which tensors from before its loss is computed from."""

    def __init__(self, going_on: ContinuingChild, trained: Iterable[Tensor]) -> None:
        self._life = ChildLife(going_on, self._complete_outcome)
        self._roots = _LossRootRecorder(trained)
        self._noise = SymmetricNoise(1)
        self._is_in_closure = False
        self._num_backwards = self._depth = 0

    def begin(self) -> None:
        """Put in place what looks at the tensors."""
        self._life.listen()
        wrap_backward_and_loader(self._wrap_backward, self._wrap_loader_next).exchange()
        register_optimizer_step_pre_hook(self._before_step)
        self._noise.__enter__()  # the seeds of the other children: what is drawn in memory is the same
        self._roots.__enter__()  # type: ignore[no-untyped-call] # for the rest of the child's life

    def _before_step(self, _optimizer: Any, args: Any, kwargs: Any) -> None:
        self._is_in_closure = is_given_closure(args, kwargs) and not self._num_backwards
        if not self._is_in_closure:
            self._life.end()

    def _wrap_backward(self, original: Call) -> Call:
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._num_backwards += not self._depth
            if self._num_backwards > 1:
                self._life.end(failure="several backwards lead to a step")
            self._depth += 1  # the method calls the function
            try:
                return original(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._is_in_closure and not self._depth:
                    self._life.end()

        return backward

    def _wrap_loader_next(self, _original: Call) -> Call:
        def __next__(_iterator: Any) -> Any:  # noqa: N807
            self._life.end(failure="a loader hands over a batch")

        return __next__

    def _complete_outcome(self, seen: ChildOutcome) -> None:
        seen.roots, seen.cuts_root = self._roots.roots_used_with_parameters(), self._roots.cuts()


def wrap_backward_and_loader(backward: Layer, handing_over: Layer) -> WatchWrappers:
    """Return the layers around both forms of backward, and around what hands over a loader's batch."""
    wrappers = WatchWrappers()
    wrappers.method(torch.Tensor, "backward", backward)
    wrappers.function(torch.autograd, "backward", backward)
    wrappers.method(_BaseDataLoaderIter, "__next__", handing_over)
    return wrappers


def is_given_closure(args: Any, kwargs: Any) -> bool:
    """Tell whether an optimizer's step, with these arguments, computes the loss itself."""
    return any(each is not None for each in (*args[1:2], kwargs.get("closure")))


class _LossRootRecorder(TorchFunctionMode):
    """Notes tensors without a graph that were there before, and that operations with gradients are given."""

    def __init__(self, trained: Iterable[Tensor]) -> None:
        super().__init__()
        self.found: dict[int, None] = {}
        self._cut: set[int] = set()
        self._whole: set[int] = set()  # what is used as a whole, too
        self._known = {address_of(each) for each in (*trained, *all_parameters_and_buffers())}
        # kept, so that nothing that is made in the step gets the identity of one
        self._before = {id(each): each for each in gc.get_objects() if issubclass(type(each), Tensor)}
        self._made_of: dict[int | None, set[int]] = {}  # what is known of a tensor, by its address
        self._beside_graphs: set[int] = set()
        self._kept: list[Any] = []  # so that no address comes again

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        result = func(*args, **(kwargs or {}))
        made = list(tensors_within(result))
        if torch.is_grad_enabled() and made:  # a shape that is read is no use
            for each in tensors_within((args, kwargs)):
                keeps_rows = each.ndim and made[0].ndim and len(each) == len(made[0])
                self._note_root(each, is_cut=not keeps_rows and _is_row_selection(name, args, kwargs or {}))
        roots = self._roots_of((args, kwargs)) if made else set()
        if any(each.requires_grad for each in made):  # also what a loss could have used, and does not
            self._beside_graphs |= roots
        for each in made:
            self._made_of.setdefault(address_of(each), set()).update(roots)
            if id(each) not in self.found:
                self._known.add(address_of(each))
                self._kept.append(each)
        return result

    def _roots_of(self, given: Any) -> set[int]:
        tensors = list(tensors_within(given))
        known = (self._made_of.get(address_of(each), ()) for each in tensors)
        return {id(each) for each in tensors if id(each) in self.found}.union(*known)

    def roots_used_with_parameters(self) -> list[int]:
        """Return the tensors that came together with parameters; a figure that is read beside may be of an earlier step."""
        return [each for each in self.found if each in self._beside_graphs]

    def _note_root(self, given: Tensor, *, is_cut: bool) -> None:
        is_new = address_of(given) not in self._known and id(given) in self._before
        if given.requires_grad or not given.ndim or not (is_new or id(given) in self.found):
            return
        self.found.setdefault(id(given))
        (self._cut if is_cut else self._whole).add(id(given))

    def cuts(self) -> bool:
        """Tell whether a tensor was cut of which no operation was given the whole."""
        return bool(self._cut & self._beside_graphs - self._whole)


def _is_row_selection(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether an operation takes some rows of a tensor, not all of them."""
    if name not in _CUT:
        return False
    index = args[1] if len(args) > 1 else None
    if name == "__getitem__":
        first = index[0] if isinstance(index, tuple) and index else index
        # an index may be an array, which compares by element
        return not (first is Ellipsis or first is None or (isinstance(first, slice) and first == slice(None)))
    return not kwargs.get("dim", next((each for each in args[1:] if isinstance(each, int)), 0))


def batch_in_memory(seen: ChildOutcome) -> dict[str, Tensor] | None:
    """Return the tensors that a child saw the next step's loss come of, by their names; None where they are no whole batch."""
    wanted = set(seen.roots)
    if seen.failure or seen.error or seen.cuts_root or not 0 < len(wanted) <= _MOST_TENSORS:
        return None
    found = {id(each): each for each in gc.get_objects() if id(each) in wanted and isinstance(each, Tensor)}
    if len(found) < len(wanted):
        return None
    names = variable_names_of_tensors(found)
    batch = {names.get(key, f"tensor {number}"): found[key] for number, key in enumerate(seen.roots)}
    rows = len(max(batch.values(), key=lambda each: each.numel()))
    # a constant that all examples share is no part of the batch
    return {name: each for name, each in batch.items() if len(each) == rows}


def variable_names_of_tensors(tensors: Mapping[int, Tensor]) -> dict[int, str]:
    """Return the names that the script has for tensors, by their identities."""
    found: dict[int, str] = {}
    for variables in _user_frame_variables():
        for name, value in list(variables.items()):
            if id(value) in tensors and not name.startswith("_"):
                found.setdefault(id(value), name)
    return found


def _user_frame_variables() -> Iterator[Mapping[str, Any]]:
    """Yield the variables of the user's frames, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        if not is_library_file(frame.f_code.co_filename):
            yield frame.f_locals
        frame = frame.f_back  # type: ignore[assignment]


def write_batch_in_memory(batch: Mapping[str, Tensor], changed: Mapping[str, Tensor]) -> None:
    """In a child: give the tensors of the batch other values, and maybe another number of rows."""
    for name, each in batch.items():
        each.data = changed[name]


def demand_rows_are_examples(experiment: Any) -> None:
    """Make sure, where examples meet, that a loader made the batch: else they may be a graph, or one long sequence.

    Raises:
        ExperimentNotTriedError: no loader did, and no two shapes were spread over one another.
    """
    is_clear = experiment.mixing is not None and experiment.mixing.is_broadcast_table
    if not experiment.plan.is_from_loader and not is_clear:
        raise ExperimentNotTriedError(
            "rows of the batch meet in the step, and no loader says that they are examples"
        )
