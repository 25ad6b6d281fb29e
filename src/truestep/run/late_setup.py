# SPDX-License-Identifier: Apache-2.0
"""What a run is made of comes before its loops: a resumed run begins with it, and goes on in the middle of a loop."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from truestep.core.call_site import user_call_site
from truestep.core.errors import OptionError

if TYPE_CHECKING:
    from truestep.run.cursor import RunCursor


def refuse_data_call_in_loop(cursor: "RunCursor") -> None:
    """Raise an OptionError where `run.data` is called in the body of a loop: a resumed body would not come there again."""
    if not cursor.is_in_loop:
        return
    site = user_call_site()
    where = f" at {site.place}" if site else ""
    variable = (site.variable if site else None) or "source"
    raise OptionError(
        f"run.data was called{where} inside a loop over run.epochs, run.batches or run.steps. Each call makes another source with "
        "an order and a place of its own, and a run that is resumed in the middle of the loop would not find them again. Write "
        f"{variable} = run.data(...) once, before the loop, and use {variable} in it: run.batches({variable}) begins a new pass "
        "each time. For data that is other data in each epoch, give run.data a function that makes an iterable, or net.evaluate a "
        "list of batches or a DataLoader."
    )


def refuse_creation_after_start(call: str, holds: str, *, started: bool) -> None:
    """Raise an OptionError where something that checkpoints hold is made after the run had begun."""
    if started:
        # here, so that the name of a run loads few modules
        from truestep.run.notebook import is_interactive_session

        again = " In a notebook, run the cell with ts.Run(...) once more, and then this one: the run goes on from its last save."
        raise OptionError(
            f"{call} came after the run had begun, so a resumed run could not have put {holds} back in time. Call it before the "
            f"first loop, update, evaluation or log.{again if is_interactive_session() else ''}"
        )


def label_for_run_data(taken: Collection[str], name: str) -> str:
    """Return what the user knows new data by: the variable that takes it, or the line; `name` where neither tells it apart."""
    site = user_call_site()
    if site is None:
        return name
    labels = [*([site.variable] if site.variable else []), site.place, f"{site.place} ({name})"]
    return next(each for each in labels if each not in taken)
