# SPDX-License-Identifier: Apache-2.0
"""What was found in files that did not change since, kept by the digest of all that it depends on."""

from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from truestep.core import disk_cache as store
from truestep.doctor.finding import Abstention, Finding, Place, Severity
from truestep.doctor.reading_result import SourceReading
from truestep.doctor.replacement import Replacement, SourceEdit

_MOST_ENTRIES = 2_000  # the oldest go first
_TOOL = Path(__file__).parent


def source_readings_folder() -> Path:
    """Return the folder in which this platform keeps what can be found again."""
    return store.cache_folder("read")


def source_reading_cache_key(*parts: str) -> str:
    """Return the name of an entry: of these parts, this Python and the files of the doctor itself."""
    return store.cache_key(parts, str(Path.cwd()), _doctor_state())


@cache
def _doctor_state() -> str:
    """Return the state of the doctor: it is the same for as long as this process runs."""
    return store.cache_state_of_files(_TOOL.rglob("*.py"))


def cached_source_reading(folder: Path, key: str) -> SourceReading | None:
    """Return what was found, if it is kept whole."""
    try:
        document = store.read_cached(folder, key)
        return None if document is None else _reading_from_json(document)
    except (ValueError, TypeError, KeyError):
        return None


def cache_source_reading(folder: Path, key: str, reading: SourceReading) -> None:
    """Keep what was found; a folder that can't be written to, or evidence that is no JSON, keeps nothing."""
    store.write_cached(folder, key, _reading_to_json(reading))


def forget_oldest_source_readings(folder: Path) -> None:
    """Delete the entries that were not written for longest, where there are too many."""
    store.forget_oldest_cached(folder, _MOST_ENTRIES)


def _reading_to_json(reading: SourceReading) -> dict[str, Any]:
    return {
        "findings": [asdict(each) for each in reading.findings],
        "abstentions": [asdict(each) for each in reading.abstentions],
        "unreadable": reading.unreadable,
        "lost_files": reading.lost_files,
        "num_files": reading.num_files,
        "num_hidden": reading.num_hidden,
        "retired": sorted(reading.retired),
        "lines": [(asdict(place), line) for place, line in reading.lines.items()],
    }


def _reading_from_json(document: dict[str, Any]) -> SourceReading:
    return SourceReading(
        findings=[_finding_from_json(each) for each in document["findings"]],
        abstentions=[
            Abstention(each["code"], Place(**each["place"]), each["reason"])
            for each in document["abstentions"]
        ],
        unreadable=[(path, reason) for path, reason in document["unreadable"]],
        lost_files=document["lost_files"],
        num_files=document["num_files"],
        num_hidden=document["num_hidden"],
        retired=set(document["retired"]),
        lines={Place(**place): line for place, line in document["lines"]},
    )


def _finding_from_json(found: dict[str, Any]) -> Finding:
    change = found.pop("replacement")
    place, severity = Place(**found.pop("place")), Severity(found.pop("severity"))
    return Finding(**found, place=place, severity=severity, replacement=_replacement_from_json(change))


def _replacement_from_json(change: dict[str, Iterable[Any]] | None) -> Replacement | None:
    if change is None:
        return None
    return Replacement(tuple(SourceEdit(**each) for each in change["edits"]), tuple(change["diff"]))
