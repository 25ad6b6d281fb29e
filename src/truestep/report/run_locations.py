# SPDX-License-Identifier: Apache-2.0
"""Where the runs are that are listed or reported on: in folders, or in mirrors, of which a folder is shown."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from truestep.core.errors import RunDirectoryError
from truestep.core.text_formatting import duration_text
from truestep.mirror.address import mirror_address_or_none
from truestep.mirror.reading import StoredRunView, open_stored_run, run_addresses_below
from truestep.report.state import ReportedState


@contextmanager
def stored_runs(address: str) -> Iterator[list[StoredRunView]]:
    """Yield the runs at an address and below it, with what lies beside the newest checkpoint of each."""
    with ExitStack() as kept:
        runs = []
        for place in run_addresses_below(address):
            run = kept.enter_context(open_stored_run(place))
            run.fetch_metrics_and_media()
            runs.append(run)
        yield runs


@contextmanager
def folders_of_runs(given: Sequence[str | Path]) -> Iterator[list[str | Path]]:
    """Yield what was given, with the folders of its runs in an address's place."""
    with ExitStack() as kept:
        found: list[str | Path] = []
        for each in given:
            address = mirror_address_or_none(each)
            runs = [] if address is None else kept.enter_context(stored_runs(address))
            if address is not None and not runs:
                raise RunDirectoryError(
                    f"{address} holds no run, and neither does what is below it: give the address that ts.Run(..., mirror=...) "
                    "was given."
                )
            found += [run.directory for run in runs] if address else [each]
        yield found


def run_state_in_store(run: StoredRunView, last: ReportedState) -> ReportedState:
    """Say how a run stands by its lease: at work, where it was shown within one; else as its newest checkpoint tells, `last`."""
    lease = run.seen.lease
    if lease is None or lease.released:
        return last
    seconds = max(0.0, (datetime.now(UTC) - run.changed()).total_seconds())
    heard = f"{lease.holder} was heard of {duration_text(seconds)} ago by the store's clock"
    if seconds <= lease.seconds:
        return ReportedState("running", heard)
    return ReportedState("interrupted", f"{heard}; {last.why or last.word}")
