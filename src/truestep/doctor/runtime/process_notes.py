# SPDX-License-Identifier: Apache-2.0
"""What each process of a run saw: left in a folder by all of them, read there by the one that reports."""

import json
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from truestep.core.os_specific import user_id
from truestep.doctor.finding import CheckFailure, Finding, Place, Severity

PATIENCE = 30.0  # seconds to wait for processes that are about to end


@dataclass(frozen=True)
class WatchNotes:
    """What one process saw."""

    process: str  # "rank 1", or its name in multiprocessing
    num_steps: int = 0
    findings: list[Finding] = field(default_factory=list)
    failures: list[CheckFailure] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return what is written."""
        return {
            "process": self.process,
            "num_steps": self.num_steps,
            "findings": [asdict(each) for each in self.findings],
            "failures": [asdict(each) for each in self.failures],
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> "WatchNotes":
        """Return what was written."""
        findings = [_finding_from_dict(each) for each in found["findings"]]
        failures = [CheckFailure(**each) for each in found["failures"]]
        return cls(found["process"], found["num_steps"], findings, failures)


def _finding_from_dict(found: dict[str, Any]) -> Finding:
    # what a run shows has no replacement: those come from reading, which one process does for all
    restored = {
        "severity": Severity(found["severity"]),
        "place": Place(**found["place"]),
        "replacement": None,
    }
    return Finding(**{**found, **restored})


class WatchNotesFolder:
    """Where the processes of one run leave their notes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_this_run(cls) -> "WatchNotesFolder | None":
        """Return the folder that the processes which torchrun started on this machine share."""
        if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) < 2 or "LOCAL_RANK" not in os.environ:
            return None
        import psutil

        parent = psutil.Process(os.getppid())  # they are all its children
        shared = (os.environ.get(name, "0") for name in ("MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"))
        began = int(1000 * parent.create_time())
        name = "-".join(("truestep-doctor", f"{user_id()}", f"{parent.pid}", f"{began}", *shared))
        path = Path(tempfile.gettempdir()) / name
        path.mkdir(mode=0o700, exist_ok=True)
        if user_id() not in (None, path.stat().st_uid):
            return None
        return cls(path)

    def begin(self, process: str) -> None:
        """Say that a process has begun."""
        self._write_document("begun", {"process": process})

    def leave(self, notes: WatchNotes) -> None:
        """Leave what this process saw, whole or not at all."""
        self._write_document("notes", notes.to_dict())

    def _write_document(self, kind: str, document: dict[str, Any]) -> None:
        half = self.path / f"{os.getpid()}.half"
        half.write_text(json.dumps(document, default=str), "utf-8")
        half.rename(self.path / f"{os.getpid()}.{kind}")

    def collect(self, *, num_expected: int, wait: bool) -> tuple[list[WatchNotes], list[str]]:
        """Return all notes, and which processes began and left none.

        Args:
            num_expected: so many processes are known to leave some.
            wait: give those that still run a moment to end.
        """
        deadline = time.monotonic() + (PATIENCE if wait else 0.0)
        while self._is_incomplete(num_expected) and time.monotonic() < deadline:
            time.sleep(0.02)
        written = {path.stem: _read_json(path) for path in sorted(self.path.glob("*.notes"))}
        begun = {path.stem: _read_json(path)["process"] for path in sorted(self.path.glob("*.begun"))}
        silent = [name for pid, name in begun.items() if pid not in written]
        return [WatchNotes.from_dict(each) for each in written.values()], silent

    def _is_incomplete(self, num_expected: int) -> bool:
        begun = {path.stem for path in self.path.glob("*.begun")}
        written = {path.stem for path in self.path.glob("*.notes")}
        return len(begun) < num_expected or any(_is_alive(int(pid)) for pid in begun - written)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        for path in self.path.glob("*"):
            path.unlink(missing_ok=True)
        self.path.rmdir()


def _read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def _is_alive(pid: int) -> bool:
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def merge_process_findings(all_notes: Iterable[WatchNotes]) -> list[Finding]:
    """Return each finding once, with the processes that saw it in its evidence where there are several."""
    found: dict[tuple[str, Place], list[tuple[str, Finding]]] = {}
    several = list(all_notes)
    for notes in several:
        for finding in notes.findings:
            found.setdefault((finding.code, finding.place), []).append((notes.process, finding))
    if len(several) < 2:
        return [each[0][1] for each in found.values()]
    return [
        replace(each[0][1], evidence={**each[0][1].evidence, "processes": sorted(name for name, _ in each)})
        for each in found.values()
    ]
