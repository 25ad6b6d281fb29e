# SPDX-License-Identifier: Apache-2.0
"""Data that grows or changes beside the training: its new samples never come, and a resumed run begins with other ones."""

from truestep.core.errors import DataError
from truestep.engine.data.changing_lists import ListChange, WatchedDataList
from truestep.run.state import RunState
from truestep.run.stream_cursor import StreamCursor


def check_lists_unchanged(run: RunState, stream: StreamCursor, *, whole: bool) -> None:
    """Refuse a list that has another length than when it was given, and say once where its samples are others.

    `whole` where a pass begins: then more than the list's ends are compared.
    """
    for each in stream.source.lists:
        if (change := each.change(whole=whole)) is not None:
            _warn_of_list_change(run, stream.label, each, change)


def _warn_of_list_change(run: RunState, label: str, items: WatchedDataList, change: ListChange) -> None:
    if change.before == change.now:
        if not _is_tracked_by_run(run, items):
            run.screen.say_once(_MOVED.format(label=label), key=f"moved {label}")
        return
    text = _GROWN.format(label=label, before=change.before, now=change.now)
    if change.is_data_itself:
        raise DataError(f"{text}.")
    run.screen.say_once(text, key=f"grown {label}")


def _is_tracked_by_run(run: RunState, items: WatchedDataList) -> bool:
    """Whether run.track or run.state has it: the user's own code brings it to where it was."""
    return any(map(items.is_held_by, [*run.tracked.objects(), *run.user.values()]))


_BUFFER = (
    "A buffer that changes while it is trained on is no data set: draw from it in a loop of steps, for step in "
    "run.steps(10_000): net.update(loss, buffer.sample(32)), and name it before the loop, run.track(buffer=buffer), with "
    "state_dict() and load_state_dict() (docs/howto/reinforcement-learning.md)"
)
_GROWN = (
    "the data of {label!r} had {before:,} samples when run.data was given it and has {now:,} now. The order of a pass is that of "
    "the {before:,}: a new sample is never drawn, one that is gone can't be, and a run that is stopped goes on without what was "
    f"added. {_BUFFER}"
)
_MOVED = (
    "samples of the data of {label!r} have been put in the place of others since run.data was given it (a deque that is full drops "
    "its first, random.shuffle moves all), and no checkpoint has them: a run that goes on begins with those of its start, and "
    f"ends elsewhere. {_BUFFER}. To shuffle a data set write run.data(..., shuffle=True)"
)
