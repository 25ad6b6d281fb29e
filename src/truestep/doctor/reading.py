# SPDX-License-Identifier: Apache-2.0
"""What reading some files gave."""

from dataclasses import dataclass, field

from truestep.doctor.finding import Abstention, Failure, Finding, Place, Severity


@dataclass
class Reading:
    """What reading some files gave."""

    findings: list[Finding] = field(default_factory=list)
    abstentions: list[Abstention] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # path, reason
    num_files: int = 0  # looked at, the unreadable among them
    num_hidden: int = 0  # by comments and the baseline
    seconds: float = 0.0
    lines: dict[Place, str] = field(default_factory=dict)  # the text at each finding

    def worst(self) -> Severity | None:
        """Return the gravest severity found."""
        return min((finding.severity for finding in self.findings), key=lambda each: each.rank, default=None)

    def add(self, other: "Reading") -> None:
        """Take what other files gave; what was met from another file already is told once."""
        known = {(each.code, each.place) for each in self.findings}
        self.findings += [each for each in other.findings if (each.code, each.place) not in known]
        self.lines |= other.lines
        self.abstentions += other.abstentions
        self.failures += other.failures
        self.unreadable += other.unreadable
        self.num_files += other.num_files
        self.num_hidden += other.num_hidden
