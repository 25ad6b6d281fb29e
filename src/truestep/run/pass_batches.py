# SPDX-License-Identifier: Apache-2.0
"""What a loop reads a pass from: with a length where there is one, and with a look ahead where there is none."""

import inspect
import itertools
import sys
from collections.abc import Generator, Iterator
from types import FrameType
from typing import Any, NoReturn, Self

from truestep.core.call_site import is_call_result_discarded
from truestep.core.errors import OptionError
from truestep.engine.data.batch_source import BatchWithOrigin


class PassBatchReader:
    """The batches of a pass; one may be asked for before it is given out, and what that raises is raised when it is due."""

    def __init__(self, batches: Iterator[BatchWithOrigin]) -> None:
        self._batches = batches
        self._ahead: list[BatchWithOrigin] = []
        self._error: Exception | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BatchWithOrigin:
        if self._ahead:
            return self._ahead.pop()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return next(self._batches)

    def has_more(self) -> bool:
        """Ask for the next batch and keep it; data that raise are not at their end."""
        if not self._ahead and self._error is None:
            try:
                self._ahead.append(next(self._batches))
            except StopIteration:
                self._batches = iter(())
                return False
            except Exception as error:  # noqa: BLE001  (whatever it is, it is raised where the batch is due)
                self._error = error
        return True


def refuse_loop_without_body(call: str, item: str) -> None:
    """Raise an OptionError where a statement asks for a loop and goes through none."""
    if is_call_result_discarded("truestep.run.", "truestep.core."):
        raise OptionError(
            f"{call} gives what a loop goes through, and this line does nothing with it: no body runs. Write for {item} in {call}:"
        )


class RemainingLoopNumbers(Iterator[int]):
    """The numbers of the epochs or steps that are still to do."""

    def __init__(self, numbers: Generator[int], call: str) -> None:
        refuse_loop_without_body(call, "step" if ".steps" in call else "epoch")
        self._numbers, self._call = numbers, call

    def __iter__(self) -> Generator[int]:
        return self._numbers

    def __next__(self) -> int:
        return next(self._numbers)

    def close(self) -> None:
        """Leave the loop here, as `break` does."""
        self._numbers.close()

    def __index__(self) -> NoReturn:
        """Refuse `range(run.epochs(3))`."""
        raise OptionError(
            f"{self._call} gives the numbers themselves, from where the run stands, and is no number: range() has nothing to "
            f"count. Write for number in {self._call}:"
        )


class Batches(Iterator[Any]):
    """The batches of a pass; `len()` gives how many are left, and a TypeError where its data is a stream."""

    def __init__(self, batches: Generator[Any, None, str], num_left: int | None) -> None:
        refuse_loop_without_body("run.batches(source)", "batch")
        self._batches, self._num_left = batches, num_left
        self._was_begun = False

    def __iter__(self) -> Generator[Any, None, str]:
        if self._was_begun and inspect.getgeneratorstate(self._batches) == inspect.GEN_CLOSED:
            raise OptionError(
                "These batches have been given out: what run.batches(source) returns is one pass. Call it anew for each: "
                "for batch in run.batches(source) within for epoch in run.epochs(20)."
            )
        if not self._was_begun and _mentions_cycle(sys._getframe(1)):
            from truestep.run.cycled_pass_check import check_uncycled_batches  # seldom does code mention it

            self._batches = check_uncycled_batches(self._batches)
        self._was_begun = True
        return self._batches

    def __next__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        """Leave the pass here, as `break` does."""
        self._batches.close()

    def __len__(self) -> int:
        if self._num_left is None:
            raise TypeError("the number of batches of this pass is not known: its data is a stream")
        return self._num_left


def _mentions_cycle(frame: FrameType) -> bool:
    """Whether code has a name for `itertools.cycle`."""
    names, known = frame.f_code.co_names, frame.f_globals
    return "cycle" in names or any(known.get(name) is itertools.cycle for name in names)
