# SPDX-License-Identifier: Apache-2.0
"""A batch that the script makes within the step: its tensors are told from two steps, and changed where each is first used."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from truestep.doctor.experiments.batch_changes import Change
from truestep.doctor.experiments.first_data_uses import DataUse, DataUseFinder
from truestep.doctor.experiments.in_memory_batch import (
    is_given_closure,
    variable_names_of_tensors,
    wrap_backward_and_loader,
)
from truestep.doctor.experiments.in_process_child import ChildLife
from truestep.doctor.experiments.outcome import ChildOutcome
from truestep.doctor.experiments.skip_reasons import TAKEN_BESIDE, ExperimentNotTriedError, why_child_raised
from truestep.doctor.finding import Place
from truestep.doctor.forks.fork import ContinuingChild
from truestep.doctor.relations.examples import Examples
from truestep.doctor.runtime.user_code_line import path_in_finding

_MOST_BYTES, _MOST_TURNS = 64_000_000, 12
_OTHER = "no loader handed over a third batch; "
Call = Callable[..., Any]


@dataclass(frozen=True)
class BatchTensorsByUse:
    """Which of the tensors that a step uses are its batch, by the number of the use."""

    first: int  # before it nothing that the loss comes of is used
    names: Mapping[int, str]
    count: int
    place: str  # of the first use

    def item(self, number: int) -> str:
        """Return the name of a tensor as an item of the batch."""
        return f"[{self.names[number]!r}]"

    def changed(self, number: int, given: Tensor, change: Change) -> Tensor | None:
        """Return what a change makes of a tensor that is used; None of one that is not the batch's."""
        if number not in self.names:
            return None
        made: Tensor = change.batch(self.examples({number: given}))[self.names[number]]
        return made.reshape(given.shape)

    def examples(self, tensors: Mapping[int, Tensor]) -> Examples:
        """Return the examples of some of the tensors."""
        blocks = {key: _reshape_to_rows(each, self.count) for key, each in tensors.items()}
        return Examples(
            {self.names[key]: each for key, each in blocks.items()},
            self.count,
            {self.item(key): each for key, each in blocks.items()},
            dict.fromkeys(map(self.item, blocks), 0),
        )


def _reshape_to_rows(given: Tensor, count: int) -> Tensor:
    return given if len(given) == count else given.reshape(count, -1)


class DataUseChild:
    """A child that goes on for two turns of the same optimizers, and tells what data each of them uses.

    Args:
        going_on: how it tells.
        trained: the parameters.
        num_steps: of a turn; turns of other optimizers, such as of one that steps each second time, are left out.
    """

    def __init__(self, going_on: ContinuingChild, trained: Iterable[Tensor], num_steps: int) -> None:
        self._life = ChildLife(going_on, self._complete_outcome)
        self._uses = DataUseFinder(trained, self._record_use)
        self._num_steps = num_steps
        self._turns: list[list[DataUse]] = []
        self._stepped: list[int] = []  # the optimizers, by their identity
        self._tensors: dict[int, Tensor] = {}
        self._names: dict[int, str] = {}
        self._num_bytes = 0

    def begin(self) -> None:
        """Put in place what looks at the tensors."""
        self._life.listen()
        wrappers = wrap_backward_and_loader(self._wrap_backward, self._wrap_loader_next)
        wrappers.method(nn.Module, "__call__", module_call_recorder(self._uses))
        wrappers.exchange()
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        self._uses.__enter__()  # type: ignore[no-untyped-call] # for the rest of the child's life

    def _record_use(self, number: int, use: DataUse, given: Tensor) -> None:
        if self._turns:
            return
        name = variable_names_of_tensors({id(given): given}).get(id(given))
        name = f"of shape {tuple(use.shape)} at {_use_place(use)}" if name is None else name
        self._names[number] = f"{name} ({number})" if name in self._names.values() else name
        self._num_bytes += given.nbytes
        if self._num_bytes > _MOST_BYTES:
            self._life.end(failure=f"{_OTHER}the data that a step uses are larger than 64 MB")
        self._tensors[number] = given.detach().clone()

    def _before_step(self, _optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_given_closure(args, kwargs):
            self._life.end(failure=f"{_OTHER}a closure computes the loss within the step")
        self._uses.rests = True

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        self._uses.rests = False
        self._stepped.append(id(optimizer))
        num = self._num_steps
        if len(self._stepped) % num:
            return
        if self._stepped[-num:] == self._stepped[:num]:
            self._turns.append(self._uses.found)
        self._uses.begin_again()
        if len(self._turns) > 1:
            self._life.end()
        if len(self._stepped) >= _MOST_TURNS * num:
            self._life.end(failure=f"{_OTHER}the optimizers step in no order that is known")

    def _wrap_backward(self, original: Call) -> Call:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self._uses.goes_backward(tensors if isinstance(tensors, (list, tuple)) else (tensors,))
            return original(tensors, *args, **kwargs)

        return backward

    def _wrap_loader_next(self, _original: Call) -> Call:
        def __next__(_iterator: Any) -> Any:  # noqa: N807
            # one that reads ahead was begun in the child, for the next pass
            beside = threading.current_thread() is not threading.main_thread()
            failure = "a loader hands over a batch for some steps, and none for others"
            self._life.end(failure=TAKEN_BESIDE if beside else failure)

        return __next__

    def _complete_outcome(self, seen: ChildOutcome) -> None:
        if self._uses.why_not is not None:
            seen.failure = f"{_OTHER}its step uses {self._uses.why_not}"
        seen.turns = [[asdict(each) for each in turn] for turn in self._turns]
        wanted = {
            number for number, each in enumerate(self._turns[0] if self._turns else ()) if each.has_graph
        }
        seen.use_names = {number: each for number, each in self._names.items() if number in wanted}
        seen.use_tensors = {number: each for number, each in self._tensors.items() if number in wanted}


def module_call_recorder(uses: DataUseFinder) -> Call:
    """Return a layer around calls of modules that notes what they are given."""

    def wrap_call(original: Call) -> Call:
        def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            uses.called(module, (args, kwargs))
            return original(module, *args, **kwargs)

        return __call__

    return wrap_call


def batch_at_use(seen: ChildOutcome) -> tuple[BatchTensorsByUse, Examples]:
    """Return which tensors of the next step are its batch, and their values, by what a child saw of two steps.

    Raises:
        ExperimentNotTriedError: it can't be told that they are the whole batch.
    """
    if seen.failure is not None or seen.error is not None:
        raise ExperimentNotTriedError(seen.failure or why_child_raised(seen.error))
    if len(seen.turns) < 2:
        raise ExperimentNotTriedError(f"{_OTHER}the script is over before two more steps")
    turn, again = ([DataUse(**each) for each in one] for one in seen.turns)
    pairs = _paired_uses(turn, again)
    batch = {number: each for number, each, other in pairs if each.digest != other.digest}
    reaching = {number: each for number, each in batch.items() if each.reaches_loss}
    if not reaching:
        raise ExperimentNotTriedError(f"{_OTHER}two steps in a row use the same data, or none")
    count = _agreed_num_examples(reaching.values())
    _demand_all_rows_changed(pairs, count)
    first = min(reaching)
    names = {
        number: seen.use_names[number]
        for number, each in batch.items()
        if number >= first and each.rows == count and number in seen.use_names
    }
    found = BatchTensorsByUse(first, names, count, turn[first].place)
    return found, found.examples({number: seen.use_tensors[number] for number in names})


def _agreed_num_examples(batch: Collection[DataUse]) -> int:
    """Return how many examples all tensors of a batch hold."""
    counts = {each.rows for each in batch}
    if len(counts) > 1:
        shapes = ", ".join(sorted({str(tuple(each.shape)) for each in batch}))
        raise ExperimentNotTriedError(
            f"{_OTHER}the data that a step uses do not agree on the number of examples: {shapes}"
        )
    return counts.pop()


def _demand_all_rows_changed(pairs: Iterable[tuple[int, DataUse, DataUse]], count: int) -> None:
    """Make sure that nothing of as many rows as the batch, which may belong to its examples, stays as it was."""
    for _, each, other in pairs:
        is_as_long = count in (each.rows, each.shape[0])
        if each.digest == other.digest and each.varies and not each.counts_up and is_as_long:
            raise ExperimentNotTriedError(
                f"{_OTHER}a tensor of as many rows as the batch is the same in two steps, {tuple(each.shape)} at {_use_place(each)}"
            )


def _use_place(use: DataUse) -> str:
    place = Place.of_text(use.place)
    return use.place if place is None else f"{path_in_finding(place.path)}:{place.line}"


def _paired_uses(turn: Sequence[DataUse], again: Sequence[DataUse]) -> list[tuple[int, DataUse, DataUse]]:
    """Return what two turns use for what may reach a loss, number by number; or else for what does reach it."""
    for wanted in ("has_graph", "reaches_loss"):
        one = [(number, each) for number, each in enumerate(turn) if getattr(each, wanted)]
        other = [each for each in again if getattr(each, wanted)]
        if [each.shape for _, each in one] == [each.shape for each in other]:
            return [(number, each, match) for (number, each), match in zip(one, other, strict=True)]
    raise ExperimentNotTriedError(f"{_OTHER}two steps in a row use data of different shapes")
