# SPDX-License-Identifier: Apache-2.0
"""Which files belong together, found from their import lines alone: no file is parsed for it.

A unit is closed: whatever its files import lies in it too. So what is found in it depends on nothing outside, it can be
read in a process of its own, and its digest says whether what was found before still holds. A line that only looks
like an import, as in a text, makes a unit larger, never smaller.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from truestep.doctor.source.path_of_import import ImportPlaces, SourceDisk

_FROM = re.compile(rb"from[ \t]+(\.*)[ \t]*([\w.]*)[ \t]+import\b[ \t]*(\([^)]*\)|(?:\\\r?\n|[^\n;#])*)")
_IMPORT = re.compile(rb"import[ \t]+((?:\\\r?\n|[^\n;#])*)")
_WORD = re.compile(rb"[\w.]+")
_MOST_IDLE = 64  # files that are parsed together, and anew when one of them changes


@dataclass(frozen=True)
class SourceUnit:
    """Files that imports connect."""

    named: tuple[Path, ...]  # those of them that are to be read
    digest: str  # of the contents of all of them, and of what their imports mean
    num_bytes: int
    is_idle: bool = False  # they train nothing: that Python can parse them is all that is asked


def idle_source_units(files: Sequence[Path]) -> list[SourceUnit]:
    """Return units of files that train nothing, many in each; what they import does not matter."""
    units: list[SourceUnit] = []
    for start in range(0, len(files), _MOST_IDLE):
        group = tuple(files[start : start + _MOST_IDLE])
        contents = {str(each.absolute()): _read_bytes(str(each)) for each in group}
        known = {full: content for full, content in contents.items() if content is not None}
        digest = (
            _unit_digest(sorted(known), known, {full: [] for full in known})
            if len(known) == len(contents)
            else ""
        )
        units.append(SourceUnit(group, digest, sum(map(len, known.values())), is_idle=True))
    return units


def source_units_of(files: Iterable[Path], places: ImportPlaces | None = None) -> list[SourceUnit]:
    """Return the units of some files, in the order of their first ones; one that can't be opened has no digest."""
    named = {os.path.normpath(each.absolute()): each for each in files}
    contents, meant = _files_with_imports(named, places or ImportPlaces(SourceDisk()))
    root = _DisjointSets()
    for full, others in meant.items():
        for each in others:
            root.join(full, each)
    groups: dict[str, list[str]] = {}
    for full in sorted(contents):
        groups.setdefault(root.of(full), []).append(full)
    units = [
        SourceUnit(
            tuple(named[each] for each in group if each in named),
            _unit_digest(group, contents, meant),
            sum(len(contents[each]) for each in group),
        )
        for group in groups.values()
    ]
    lost = [SourceUnit((path,), "", 0) for full, path in named.items() if full not in contents]
    return [each for each in units if each.named] + lost


def files_reached_from(files: Iterable[Path]) -> list[str]:
    """Return the full paths of local files that some files reach by their imports, without themselves."""
    named = {os.path.normpath(each.absolute()) for each in files}
    return sorted(_files_with_imports(named, ImportPlaces(SourceDisk()))[0].keys() - named)


def _files_with_imports(
    named: Iterable[str], places: ImportPlaces
) -> tuple[dict[str, bytes], dict[str, list[str]]]:
    """Return, by full path, the contents of some files and of all that their imports reach, and what each imports."""
    contents: dict[str, bytes] = {}
    meant: dict[str, list[str]] = {}
    waiting = list(named)
    while waiting:
        full = waiting.pop()
        if full in contents or (content := _read_bytes(full)) is None:
            continue
        contents[full] = content
        if full.endswith(".ipynb"):  # its imports stand in strings
            content = content.replace(b"\\n", b"\n").replace(b'"', b"\n")
        found = {
            each for name, dots in _possible_imports(content) for each in places.reached(full, name, dots)
        }
        meant[full] = sorted(found)
        waiting += meant[full]
    return contents, meant


class _DisjointSets:
    """Sets of files that are joined, each known by one of its members."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def of(self, member: str) -> str:
        while (above := self._above.get(member, member)) != member:
            self._above[member] = self._above.get(above, above)
            member = above
        return member

    def join(self, first: str, second: str) -> None:
        self._above[self.of(first)] = self.of(second)


def _read_bytes(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None


def _possible_imports(content: bytes) -> Iterator[tuple[str, int]]:
    """Yield (full name, dots before it) for all that may be imported."""
    for dots, base, names in _match_statements(_FROM, content):
        yield base.decode(), len(dots)
        for name in _WORD.findall(names):
            yield b".".join(part for part in (base, name) if part).decode("utf-8", "replace"), len(dots)
    for (names,) in _match_statements(_IMPORT, content):
        for name in _WORD.findall(names):
            yield name.decode("utf-8", "replace"), 0


def _match_statements(pattern: re.Pattern[bytes], content: bytes) -> Iterator[tuple[bytes, ...]]:
    """Yield what a pattern finds where a statement may begin; a pattern that begins with a word is found fastest."""
    at = 0
    while (found := pattern.search(content, at)) is not None:
        before = found.start()
        while before and content[before - 1] in b" \t":
            before -= 1
        begins = not before or content[before - 1] in b"\n;:"
        if begins:
            yield found.groups()
        at = found.end() if begins else found.start() + 1


def _unit_digest(group: list[str], contents: dict[str, bytes], meant: dict[str, list[str]]) -> str:
    total = hashlib.sha256()
    for full in group:
        inner = hashlib.sha256(contents[full]).hexdigest()
        total.update(repr((full, inner, meant[full])).encode("utf-8", "surrogateescape"))
    return total.hexdigest()
