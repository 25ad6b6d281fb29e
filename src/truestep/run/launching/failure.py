# SPDX-License-Identifier: Apache-2.0
"""Which rank died first, of what, and where in the user's own code: the first lines after a launch that failed."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from truestep.core.user_frames import is_library_file
from truestep.engine.processes.rank_liveness import DID_NOT_COME, SHOWS_NO_LIFE
from truestep.explainer.logs.log_errors import ErrorInLog, decode_error_log, read_error_log

# what the others say of a rank that hung, which this launch had to end
_HUNG = (DID_NOT_COME, SHOWS_NO_LIFE)


class ProcessDeath(NamedTuple):
    """How one rank ended."""

    rank: int
    local_rank: int
    pid: int
    exit_code: int
    log: Path | None
    error: ErrorInLog | None

    @property
    def was_asked_to_stop(self) -> bool:
        """Whether the agent ended it, as it does with all ranks once one has failed."""
        return self.exit_code == -signal.SIGTERM

    @property
    def is_consequence(self) -> bool:
        """Whether it stopped because another rank had failed, or was asked to without an error of its own."""
        if self.error is None:
            return self.was_asked_to_stop
        return self.error.crash.type_names[0].rpartition(".")[2] == "RankError"

    @property
    def status(self) -> int:
        """The exit status that stands for it."""
        return self.exit_code if self.exit_code > 0 else 128 - self.exit_code


def process_deaths_by_cause(failures: Mapping[int, Any], logs: Path) -> list[ProcessDeath]:
    """Return how the ranks ended, the first cause first; `failures` are torch's, by rank."""
    found = []
    for rank, failure in failures.items():
        log = _newest_stderr_log(logs, failure.local_rank)
        errors = read_error_log(decode_error_log(log.read_bytes()) if log is not None else "").found
        errors = errors or read_error_log(_traceback_in_error_file(failure)).found
        found.append(
            ProcessDeath(
                rank, failure.local_rank, failure.pid, failure.exitcode, log, errors[-1] if errors else None
            )
        )
    return sorted(
        found,
        key=lambda each: (each.is_consequence, each.was_asked_to_stop, failures[each.rank].timestamp),
    )


def _traceback_in_error_file(failure: Any) -> str:
    """Return the traceback that a function's process left in torch's error file, where it left one."""
    message = failure.error_file_data.get("message")
    return str(message.get("extraInfo", {}).get("py_callstack", "")) if isinstance(message, dict) else ""


def _newest_stderr_log(logs: Path, local_rank: int) -> Path | None:
    # the folder may hold those of earlier launches, whose attempts have the same numbers
    found = logs.glob(f"*/attempt_*/{local_rank}/stderr.log")
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def describe_process_deaths(deaths: list[ProcessDeath]) -> str:
    """Return what is to be known first."""
    first = deaths[0]
    lines = [
        f"rank {first.rank} (process {first.pid}) died first: {_death_cause_text(first, _what_other_ranks_said(first, deaths[1:]))}"
    ]
    if first.error is not None:
        own = [frame for frame in first.error.crash.frames if not is_library_file(frame.path)]
        if own:
            lines.append(f"  at {own[-1].path}:{own[-1].line}, in {own[-1].function}: {own[-1].text}")
    if first.log is not None:
        lines.append(f"  its log: {first.log}")
    others = sorted(death.rank for death in deaths[1:])
    if others:
        lines.append(f"  stopped because of it: rank {', '.join(map(str, others))}")
    return "\n".join(lines)


def _what_other_ranks_said(death: ProcessDeath, others: list[ProcessDeath]) -> str:
    """Return what another rank's error says of a rank that has none of its own, or nothing."""
    messages = [each.error.crash.message for each in others if each.error is not None and each.is_consequence]
    found = [each[each.index(name) :] for each in messages if (name := f"rank {death.rank} (") in each]
    return found[0].split("\n", 1)[0].split(". ", 1)[0] if found else ""


def _death_cause_text(death: ProcessDeath, told: str) -> str:
    if death.error is not None:
        return death.error.crash.title
    if death.exit_code < 0:
        name = signal.Signals(-death.exit_code).name
        if any(each in told for each in _HUNG):
            return f"{told} (ended by this launch: {name})"
        hint = " (killed; out of memory, where nobody did it)" if name == "SIGKILL" else ""
        return f"signal {name}{hint}"
    if death.exit_code == 128 + signal.SIGTERM:
        return f"exit status {death.exit_code}: it was asked to stop (SIGTERM)"
    return f"exit status {death.exit_code}, without a traceback"
