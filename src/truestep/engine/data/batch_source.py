# SPDX-License-Identifier: Apache-2.0
"""What a training loop asks of its data, whatever the data is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from truestep.core.errors import DataError
from truestep.core.missing_attribute_hints import SealedAttributes
from truestep.core.text_formatting import plural
from truestep.engine.automatic_choice import Choice
from truestep.engine.batches import UNKNOWN, BatchOrigin
from truestep.engine.data.open_file_changes import HeldFile, files_used_by_data

if TYPE_CHECKING:
    from truestep.engine.data.changing_lists import WatchedDataList


class BatchWithOrigin(NamedTuple):
    """A batch and what its source knows of it."""

    batch: Any
    making: BatchOrigin = UNKNOWN
    read: str = ""
    """A digest of all that was read of a stream up to here; of all ranks' rows."""


class BatchSource(SealedAttributes, ABC):
    """Batches that can be entered anywhere: a cursor is an epoch and a number of batches.

    `num_batches` and `num_samples` count one epoch and are None where nobody knows;
    `choices` says how the data is loaded and why.
    """

    _called, _variable = "A source of batches", "source"

    num_batches: int | None
    num_samples: int | None
    choices: list[Choice]
    lists: "Sequence[WatchedDataList]" = ()
    """What the data is read from, where it may grow or change beside the training."""
    given: Any = None
    """What it reads from, as `run.data` was given it."""
    _files: Sequence[HeldFile] = ()

    @abstractmethod
    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """Yield the batches of `epoch` from number `start` on, each on its device already."""

    def made(self, epoch: int, start: int = 0) -> Iterator[BatchWithOrigin]:
        """Yield the same batches, each with what is known of how it was made."""
        return map(BatchWithOrigin, self.batches(epoch, start))

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return what tells this data from other data, as JSON: kind, sizes, types, a hash of some."""

    def facts(self) -> dict[str, Any]:
        """Return what the ranks compare before they read it: the fingerprint, and what is looked at for several ranks only."""
        return self.fingerprint()

    def note_holdings(self, data: Any) -> None:
        """Note the files and lists that the data holds, as they are now."""
        from truestep.engine.data.changing_lists import lists_of_data  # only once there is data

        self._files = files_used_by_data(data)
        self.lists, self.given = lists_of_data(data), data

    def files(self) -> Sequence[HeldFile]:
        """Return them as they were then."""
        return self._files

    def form(self) -> str:
        """Return types and shapes of its first batch, where its batches are compared over ranks when they are read."""
        return ""

    @property
    def is_per_rank(self) -> bool:
        """Whether each of several ranks reads a share, and keeps a state, of its own."""
        return False

    def tell_choices(self, told: Callable[[Choice], None]) -> None:
        """Tell all choices; a source that learns more later tells those again that became others."""
        for choice in self.choices:
            told(choice)

    def is_sorted_by_class(self) -> bool:
        """Whether its samples are seen to come class by class; a look at few of them."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs beyond epoch and batch number: nothing, except for streams."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        if state:
            raise DataError(
                f"a state of a stream ({', '.join(state)}) was given to data that keeps none: the run was "
                "saved with other data. Give the data it was saved with, or start a new run."
            )

    def accept_other_data(self) -> None:
        """Say where the data differ from those that were trained on, and go on, where that would be refused."""

    def how_it_resumes(self, epoch: int, start: int) -> str | None:
        """Return from where a resumed run goes on in this data, None where it is entered there by its number."""
        return None

    @property
    def reads_once(self) -> str:
        """What it is, where it can be read once only and so has nothing for another epoch; "" where it can be read again."""
        return ""

    def what_it_costs(self) -> str | None:
        """Return what is said once of a cheaper way to read it, None where there is nothing to say."""
        return None

    def drawn(self) -> dict[str, int]:
        """Return how many samples were drawn from each source of a mixture in this pass."""
        return {}

    @property
    def why_endless(self) -> str:
        """Why a pass of it has no end, as the end of a sentence; "" where it has one, or nobody knows."""
        return ""

    def made_for_evaluation(self) -> Iterator[BatchWithOrigin]:
        """Yield what an evaluation reads; where a training stands in the same data is not touched."""
        return self.made(0)

    def close(self) -> None:
        """End the worker processes, if there are any; the source can be used again."""

    def __iter__(self) -> NoReturn:
        raise DataError(
            "A source of batches was iterated by itself, so no epoch, step or place would be counted and a resumed run could not "
            "go on in it. Write for batch in run.batches(source): to train, net.evaluate(values, source) to evaluate."
        )

    __next__ = __iter__

    def __getitem__(self, _: object) -> NoReturn:
        raise DataError(
            "A source gives batches in the run's own order, and none by its number: for batch in run.batches(source). A sample is "
            "found in the data that the source was made of."
        )

    def __repr__(self) -> str:
        order = self.fingerprint().get("order") or {}
        batches = "batches" if self.num_batches is None else plural(self.num_batches, "batch", "batches")
        size = f" of {order['batch_size']:,}" if order.get("batch_size") else ""
        samples = (
            "samples of unknown number" if self.num_samples is None else plural(self.num_samples, "sample")
        )
        return (
            f"{type(self).__name__}({samples}, {batches}{size}{', shuffled' if order.get('shuffle') else ''})"
        )

    def __len__(self) -> int:
        if self.num_batches is None:
            raise TypeError("the number of batches of a stream is not known; source.num_batches is None")
        return self.num_batches
