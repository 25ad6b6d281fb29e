# SPDX-License-Identifier: Apache-2.0
"""What was found in files that did not change since: kept in a folder by the digest of all that it depends on.

An entry is written whole or not at all, and carries a checksum: one that is damaged is as if it were not there.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from truestep.core.files import replacing
from truestep.doctor.finding import Abstention, Finding, Place, Severity
from truestep.doctor.reading import SourceReading
from truestep.doctor.replacement import Edit, Replacement

_MOST_ENTRIES = 2_000  # the oldest go first
_TOOL = Path(__file__).parent


def cache_folder() -> Path:
    """Return the folder in which this platform keeps what can be computed again, or what TRUESTEP_CACHE names."""
    if own := os.environ.get("TRUESTEP_CACHE"):
        return Path(own)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "truestep" / "read"


def key_of(*parts: str) -> str:
    """Return the name of an entry: of these parts, this Python and the files of the doctor itself."""
    whole = repr((parts, sys.version, str(Path.cwd()), _tool()))
    return hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()


@cache
def _tool() -> str:
    """Return what tells one state of the doctor from another: it is the same for as long as this process runs."""
    stats = [(str(each), each.stat()) for each in sorted(_TOOL.rglob("*.py"))]
    return repr([(path, stat.st_mtime_ns, stat.st_size) for path, stat in stats])


def kept(folder: Path, key: str) -> SourceReading | None:
    """Return what was found, if it is kept whole."""
    try:
        checksum, _, body = (folder / key).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            return None
        return _reading_of(json.loads(body))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def keep(folder: Path, key: str, reading: SourceReading) -> None:
    """Keep what was found; a folder that can't be written to, or evidence that is no JSON, keeps nothing."""
    with suppress(OSError, TypeError, ValueError):
        body = json.dumps(_document(reading)).encode()
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / key, 0o600, is_durable=False) as file:
            file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def forget_oldest(folder: Path) -> None:
    """Delete the entries that were not written for longest, where there are too many."""
    with suppress(OSError):
        entries = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
        for each in entries[_MOST_ENTRIES:]:
            each.unlink()


def _document(reading: SourceReading) -> dict[str, Any]:
    return {
        "findings": [asdict(each) for each in reading.findings],
        "abstentions": [asdict(each) for each in reading.abstentions],
        "unreadable": reading.unreadable,
        "lost_files": reading.lost_files,
        "num_files": reading.num_files,
        "num_hidden": reading.num_hidden,
        "lines": [(asdict(place), line) for place, line in reading.lines.items()],
    }


def _reading_of(document: dict[str, Any]) -> SourceReading:
    return SourceReading(
        findings=[_finding(each) for each in document["findings"]],
        abstentions=[
            Abstention(each["code"], Place(**each["place"]), each["reason"])
            for each in document["abstentions"]
        ],
        unreadable=[(path, reason) for path, reason in document["unreadable"]],
        lost_files=document["lost_files"],
        num_files=document["num_files"],
        num_hidden=document["num_hidden"],
        lines={Place(**place): line for place, line in document["lines"]},
    )


def _finding(found: dict[str, Any]) -> Finding:
    change = found.pop("replacement")
    place, severity = Place(**found.pop("place")), Severity(found.pop("severity"))
    return Finding(**found, place=place, severity=severity, replacement=_replacement(change))


def _replacement(change: dict[str, Iterable[Any]] | None) -> Replacement | None:
    if change is None:
        return None
    return Replacement(tuple(Edit(**each) for each in change["edits"]), tuple(change["diff"]))
