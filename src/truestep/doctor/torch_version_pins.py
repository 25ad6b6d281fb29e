# SPDX-License-Identifier: Apache-2.0
"""Which torch a repository says that it needs: what that torch still does is no mistake there."""

import re
from dataclasses import replace
from pathlib import Path

from truestep.doctor.finding import Finding, Severity

_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")  # of the top of a repository
_LEVELS = 6  # folders above a file
_MOST_BYTES = 200_000
_SAYS = re.compile(
    r"(requirements.*\.txt|environment.*\.ya?ml|setup\.(py|cfg)|pyproject\.toml|Pipfile|README.*)",
    re.IGNORECASE,
)
_PIN = re.compile(
    r"(?<![\w-])(?:py)?torch(?:\s+version)?[\s\"'`*:_(v-]{0,4}(?P<how>[<>=~!]{0,3})[\s\"'v]{0,2}(?P<version>\d+(?:\.\d+)+|\d+(?=\s*[\"',\n]))"
    r"(?=(?P<behind>[^\n]{0,40}))",
    re.IGNORECASE,
)
_UPPER = re.compile(r"[\d.]*\s*,\s*(?P<how><=?)\s*(?P<version>\d+(?:\.\d+)*)")
_OR_LATER = re.compile(
    r"[\w.]*\s*(\+|(and|or|&|/)\s*(above|higher|later|newer|greater|up)|以上|及以上|或更高|>)", re.IGNORECASE
)
Version = tuple[int, ...]


class TorchPins:
    """What the files beside and above those that are read say, each folder looked into once."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Version, str] | None] = {}

    def judged(self, finding: Finding, gone_since: Version) -> Finding:
        """Return a finding, as advice where the repository asks for a torch in which the line still works."""
        if not gone_since or finding.severity is Severity.ADVICE:
            return finding
        pin = self._newest_pinned_torch(Path(finding.place.path).absolute().parent)
        if pin is None or pin[0] >= gone_since:
            return finding
        since = ".".join(map(str, gone_since))
        text = f"{finding.message} That is so since torch {since}; {pin[1]} asks for an older one."
        return replace(finding, severity=Severity.ADVICE, message=text)

    def _newest_pinned_torch(self, folder: Path) -> tuple[Version, str] | None:
        """Return the newest torch that a file of a folder, or of one above within the repository, asks for, and its name."""
        if folder not in self._known:
            found = [pin for each in _pin_files(folder) if (pin := _newest_version_in_file(each)) is not None]
            leads_on = not _is_repository_root(folder) and any(
                map(_is_repository_root, list(folder.parents)[:_LEVELS])
            )
            above = self._newest_pinned_torch(folder.parent) if leads_on and not found else None
            self._known[folder] = max(found) if found else above
        return self._known[folder]


def _is_repository_root(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in _MARKS)


def _pin_files(folder: Path) -> list[Path]:
    try:
        return [each for each in sorted(folder.iterdir()) if _SAYS.fullmatch(each.name) and each.is_file()]
    except OSError:
        return []


def _newest_version_in_file(path: Path) -> tuple[Version, str] | None:
    """Return the newest version that a file names without "or later", a bound as what lies just below it."""
    try:
        text = path.read_bytes()[:_MOST_BYTES].decode(errors="replace")
    except OSError:
        return None
    versions = [each for found in _PIN.finditer(text) if (each := _parse_pin(found)) is not None]
    return (max(versions), path.name) if versions else None


def _parse_pin(found: re.Match[str]) -> Version | None:
    how, version, behind = found["how"], found["version"], found["behind"]
    if how.startswith(">"):
        upper = _UPPER.match(behind)
        if upper is None:
            return _ENDLESS
        how, version = upper["how"], upper["version"]
    elif how.startswith("!") or _OR_LATER.match(behind):
        return _ENDLESS
    numbers = tuple(map(int, version.split(".")))
    return (*numbers[:-1], numbers[-1] - 1, _LAST) if how == "<" else numbers


_LAST = 9_999  # below the next one
_ENDLESS: Version = (_LAST,)  # any later one will do
