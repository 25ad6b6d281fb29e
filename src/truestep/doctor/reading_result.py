# SPDX-License-Identifier: Apache-2.0
"""What reading some files gave."""

from dataclasses import dataclass, field

from truestep.doctor.finding import Abstention, CheckFailure, Finding, Place, Severity


@dataclass
class SourceReading:
    """What reading some files gave."""

    findings: list[Finding] = field(default_factory=list)
    abstentions: list[Abstention] = field(default_factory=list)
    failures: list[CheckFailure] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # a file, cell or block, and the reason
    lost_files: list[str] = field(default_factory=list)  # those that could not be read at all
    num_files: int = 0  # looked at, the unreadable among them
    num_hidden: int = 0  # by comments and the baseline
    seconds: float = 0.0
    retired: set[str] = field(default_factory=set)  # codes that comments or the baseline still name
    lines: dict[Place, str] = field(default_factory=dict)  # the text at each finding

    @property
    def num_read(self) -> int:
        """How many files were read; a notebook counts although one of its cells was not."""
        return self.num_files - len(self.lost_files)

    def note_unreadable_file(self, path: str, error: Exception) -> None:
        """Note a file that can't be read."""
        written = (getattr(error, "text", None) or "").strip()  # of a SyntaxError: its line
        self.unreadable.append((path, f"{type(error).__name__}: {error}{f': {written}' if written else ''}"))
        self.lost_files.append(path)

    def worst_severity(self) -> Severity | None:
        """Return the gravest severity found."""
        return min((finding.severity for finding in self.findings), key=lambda each: each.rank, default=None)

    def add(self, other: "SourceReading") -> None:
        """Take what other files gave; what was met from another file already is told once."""
        known = {(each.code, each.place) for each in self.findings}
        self.findings += [each for each in other.findings if (each.code, each.place) not in known]
        self.lines |= other.lines
        self.abstentions += other.abstentions
        self.failures += other.failures
        self.unreadable += other.unreadable
        self.lost_files += other.lost_files
        self.num_files += other.num_files
        self.num_hidden += other.num_hidden
        self.seconds += other.seconds
        self.retired |= other.retired
