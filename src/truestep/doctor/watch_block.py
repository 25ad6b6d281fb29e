# SPDX-License-Identifier: Apache-2.0
"""`with ts.watch(...):` in a script or notebook."""

from collections.abc import Sequence
from weakref import finalize

from torch import nn
from torch.optim import Optimizer

from truestep.core.errors import OptionError
from truestep.core.text_formatting import a_type
from truestep.core.user_frames import line_of_user_code, warn_user
from truestep.doctor.runtime.user_code_line import watched_user_place
from truestep.doctor.runtime.watch import NEVER_BEGUN, Watch, WatchOptions
from truestep.doctor.selection import selection_of


def watch(
    *watched: nn.Module | Optimizer,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Watch:
    """Watch the training code in a `with` block and return what was found.

    Nothing need be given. Models and optimizers made before the block are known from the first time that they
    are used; naming them (in any order) makes them known at once. Within `truestep doctor`, which watches the
    whole script, the block finds nothing of its own.

    Watching applies nothing: what it tells comes from what the block computes. Checks that apply the model once more
    run in `truestep doctor`.

    Args:
        watched: models and optimizers.
        select: codes, beginnings of codes, or names, to report; all when empty.
        ignore: codes, beginnings of codes, or names, to leave out.

    Raises:
        OptionError: something else is to be watched, a code that no check begins with, or only checks that a block
            does not run.
    """
    selection = selection_of(select, ignore)
    for line in (lines := selection.passed_over()):
        warn_user(line)
    made = Watch(WatchOptions(selection))
    if select and not made.watchers and not lines:
        raise OptionError(
            f"watch(select={list(select)}) would follow nothing: these checks read the source, or apply the model once "
            "more, which a block does not. `truestep doctor train.py` runs them all."
        )
    for each in watched:
        if isinstance(each, Optimizer):
            made.recorder.steps.known(each, watched_user_place())
        elif isinstance(each, nn.Module):
            made.recorder.models.add(each)
        else:
            raise OptionError(
                f"watch() was given {a_type(each)}. It follows models (nn.Module) and optimizers; "
                "name those, or nothing: what the block uses is known from its first use."
            )
    made.if_never_begun = finalize(made, _warn_of_unused_watch, line_of_user_code() or "this script")
    return made


def _warn_of_unused_watch(line: str) -> None:
    """Warn of a watch that is gone, or lasts to the end of Python, and never began."""
    warn_user(f"The watch made at {line} never began. {NEVER_BEGUN}")
