# SPDX-License-Identifier: Apache-2.0
"""What is promised of a stream, what can't be asked of one, and what is said where it is another than was trained on."""

from collections.abc import Iterator
from typing import Any

from truestep.core.errors import DataError
from truestep.core.text_formatting import a_type
from truestep.engine.automatic_choice import Choice
from truestep.engine.data.batch_digest import ReadRecord
from truestep.engine.data.options import DataOptions
from truestep.engine.data.stream_batches import BY_EPOCH_OF_WEBDATASET, SampleStream, is_library_object
from truestep.engine.data.stream_state_check import StateTrial
from truestep.engine.processes.batch_row_shares import RankShare

_REPLAYED = "a resumed run reads its pass again from the front and compares that with what was trained on"
_EVENING = {"streaming": "MosaicML Streaming", "litdata": "litdata"}  # repeat or drop samples


def stream_resume_choice(stream: SampleStream, trial: StateTrial | None) -> Choice:
    """Return what a resumed run does with it: as far as it is known, at first and when its state was tried."""
    if stream.has_unseeded_shuffle:
        return Choice(
            "promise",
            "can't be resumed",
            "it draws from the clock (a shuffle of webdataset without rng= or seed=, or resampled=True), so a run that is started "
            f"again finds other samples and is refused. {BY_EPOCH_OF_WEBDATASET.rstrip()}",
            weakens=True,
        )
    if trial is not None and trial.holds:
        return Choice(
            "promise", "exact, or refused", f"a resumed run goes on from its own state; {trial.why}"
        )
    if trial is not None:
        return Choice("promise", "exact, or refused", f"{_REPLAYED}: {trial.why}")
    known = "" if not stream.may_have_state else "; from its own state once that was tried"
    return Choice("promise", "exact, or refused", f"the data decides its order: {_REPLAYED}{known}")


def untried_state_message(stream: SampleStream, why: str) -> str:
    """Return what is said where the trial of a stream's state was ended before anything came of it."""
    return (
        f"this stream ({a_type(stream.data)}) counts as one without a state, so {_REPLAYED}: {why}. Where it should go on from its "
        "own state, let go of locks before each yield, and open queues, connections and threads in __iter__."
    )


def shared_stream_cost_message(num_ranks: int) -> str:
    """Return what it costs that every rank reads a whole stream, and the word that saves it."""
    return (
        f"each of {num_ranks} ranks reads all of it and takes its own rows, which costs {num_ranks} times the reading; a stream "
        "that is split by rank is read once with run.data(..., per_rank=True)"
    )


def stream_sharing_choices(data: Any, share: RankShare, *, per_rank: bool) -> Iterator[Choice]:
    """Yield how several ranks read a stream, and what its library does to make their parts even."""
    if share.size == 1:
        return
    if not per_rank:
        yield Choice("reading", "whole", shared_stream_cost_message(share.size))
        return
    yield Choice("reading", "per rank", "as asked: the order is one of the number of ranks, too")
    for library in sorted(each for each in _EVENING if is_library_object(data, each)):
        yield Choice(
            "samples",
            "some repeated or dropped",
            f"{_EVENING[library]} gives each rank as many samples as the others: an evaluation counts some twice, or not at all",
            weakens=True,
        )


def changed_stream_message(
    stream: SampleStream, how: str, saved: dict[str, Any], *, is_accepted: bool
) -> str:
    """Return what is said where a stream gives other samples than were trained on."""
    told = f"this stream ({a_type(stream.data)}) is not what this run was trained on: {how}."
    if is_accepted:
        return f"{told} The run goes on with it as it is now, as resume='edited' asks."
    samples = ReadRecord(saved["read"]).samples if "read" in saved else 0
    lost = f"the {samples:,} samples" if samples else "the samples"
    return (
        f"{told} Going on would train again on some of {lost} of this pass, and never on as many others. {stream.advice} "
        "ts.Run(..., resume='edited') goes on with the stream as it is now, resume='anew' starts a new run."
    )


def empty_stream_message(stream: SampleStream, epoch: int, options: DataOptions) -> str:
    """Return what is said of a pass that had no batch at all."""
    told = f"this stream ({a_type(stream.data)}) gave no batch in its pass {epoch + 1}, so nothing was read of it."
    if options.drop_last:
        told += f" drop_last=True leaves out a batch of fewer than batch_size={options.batch_size} samples."
    return (
        f"{told} Look whether its files are where it reads them. What is its own iterator is used up after one pass: give a "
        "function that makes it, run.data(lambda: ...)."
    )


def unknown_epoch_message(stream: SampleStream, epoch: int) -> str:
    """Return what is said where a process begins with a later pass of a stream that does not know which it is."""
    return (
        f"begins its pass {epoch + 1}, and nothing tells it so: can't be promised, unless it gives the same in every pass. "
        f"{stream.advice}"
    )


def difference_location(before: ReadRecord, again: ReadRecord) -> str:
    """Return between which batches two readings differ."""
    same, other = before.differing_batch_range(again) or (0, 1)
    if other == same + 1:
        return f"it differs from batch {other:,} on"
    return f"it differs between batches {same + 1:,} and {other:,}"


def refuse_other_readers(before: int, now: int) -> None:
    """Raise a DataError where a stream was read by another number of workers."""
    if before != now:
        raise DataError(
            f"the stream was saved with {before} readers and now has {now}: the parts they had read don't fit, so "
            f"samples would come twice and others never. Write num_workers={before} as before, or start a new run."
        )


def check_stream_options(stream: SampleStream, options: DataOptions, share: RankShare) -> None:
    """Raise a DataError for what a stream can't do."""
    kind = type(stream.data).__name__
    for name in ("shuffle", "weights", "by_length"):
        if getattr(options, name) not in (None, False):
            raise DataError(
                f"{name}= needs samples that can be asked for by number, and a {kind} "
                "can only be read from front to back. Do it inside the stream, or give a data set with "
                "__len__ and __getitem__."
            )
    if options.batch_size is None and (options.collate or options.drop_last):
        raise DataError(
            "collate= and drop_last= make batches of samples, and without batch_size= the items of a "
            "stream are the batches. Write batch_size=32, or leave them out."
        )
    if stream.reads_once and options.num_workers not in ("auto", 0):
        raise DataError(
            f"a {kind} can't be split among num_workers={options.num_workers}: each "
            "would read all of it. Give a data set with __iter__ that asks "
            "torch.utils.data.get_worker_info()."
        )
    if options.per_rank and options.batch_size is not None and options.batch_size < share.size:
        raise DataError(
            f"batch_size={options.batch_size} with per_rank=True on {share.size} ranks: it is the number of all ranks together, so "
            f"some would never read a sample of theirs. Write batch_size={share.size} or more."
        )


ENDLESS_EVALUATION = (
    "net.evaluate was given data that has no end: {why}. Give it so many samples: "
    "run.data(lambda: itertools.islice(rows(), 10_000), batch_size=64), where rows is what makes them."
)
