# SPDX-License-Identifier: Apache-2.0
"""What a check is: a source check reads a file, a watcher follows a run, a probe tries the model.

One file under `checks/<topic>/` holds one check, named after the mistake. Its docstring is its page.
None of them imports torch at module level.
"""

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from truestep.doctor.finding import Finding, Place, Severity
from truestep.doctor.page import CheckPage, check_name, parse_check_page
from truestep.doctor.source.training_actions import Action

if TYPE_CHECKING:
    from truestep.doctor.source.module import SourceModule
    from truestep.doctor.source.rewriting import Edits
import inspect
import sys

# safe: the script computes the same bits after it; fix: of a bug it is right in every variant; choice: one of several ways
Rewrites = Literal["safe", "fix", "choice"]
_PAGE_NAMES = re.compile(r"(?<![\w.])(net|opt|sched)(?=[.)])")  # as code: `net.eval()`, `copy.deepcopy(net)`
BUG, RISK, ADVICE, QUESTION = Severity.BUG, Severity.RISK, Severity.ADVICE, Severity.QUESTION


@dataclass(frozen=True)
class At:
    """A source check's finding: the node it stands at and what to say there."""

    node: ast.AST
    message: str
    severity: Severity = BUG
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Unsure:
    """A source check's abstention: it met its subject at this node and can't tell."""

    node: ast.AST
    reason: str


class Check(ABC):
    """One mistake: its code, its name and its page."""

    code: ClassVar[str]
    is_preview: ClassVar[bool] = False  # until it was true in code that its author did not know

    @classmethod
    @cache
    def page(cls) -> CheckPage:
        """Return the parts of the docstring."""
        return parse_check_page(cls.__doc__ or "")

    @classmethod
    def name(cls) -> str:
        """Return the mistake's name as findings show it."""
        return check_name(cls.__name__)

    @classmethod
    def found_by(cls) -> list[str]:
        """Return how it finds the mistake: "read" in the source, "run" while the script runs, or both."""
        kinds = {"SourceCheck": "read", "Watcher": "run", "Probe": "run", "ExperimentRelation": "run"}
        return [way for name, way in kinds.items() if name in {base.__name__ for base in cls.__mro__}]

    @classmethod
    def severities(cls) -> tuple[Severity, ...]:
        """Return what its findings may be, gravest first; a bug that rests on a name alone is told as a risk."""
        return check_severities(cls.__module__)

    def finding(
        self,
        place: Place,
        message: str,
        severity: Severity = BUG,
        names: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Finding:
        """Make a finding of this check; `names` are the user's for those of the page: `{"net": "self.model"}`."""
        page, own = self.page(), names or {}
        return Finding(
            code=self.code,
            name=self.name(),
            severity=severity,
            place=place,
            message=message,
            why=page.why,
            fix=_PAGE_NAMES.sub(lambda found: own.get(found[0], found[0]), page.fix),
            **more,
        )


class SourceCheck(Check):
    """A check that decides from the text of one file."""

    rewrites: ClassVar[Rewrites] = "fix"  # what its rewrite is
    never: ClassVar[tuple[Action, ...]] = ()  # what it says does not happen: told of a closed world alone
    holds_anywhere: ClassVar[bool] = False  # whether a bug is one in a program that trains nothing, too
    words: ClassVar[tuple[str, ...]] = ()  # a program with none of these can't have the mistake
    gone_since: ClassVar[tuple[int, ...]] = ()  # the torch in which what it tells came to be a mistake
    shows_as: ClassVar[
        tuple[str, ...]
    ] = ()  # running checks that see this mistake by what it does: told once

    @abstractmethod
    def read(self, module: "SourceModule") -> Iterator[At | Unsure]:
        """Yield the mistakes of one file, and the places where it can't be told."""

    def rewrite(self, module: "SourceModule", node: Any) -> "Edits":
        """Return the edits that mend the mistake at a node that `read` gave; none where that takes a choice."""
        return ()


# what makes a finding, with the number of arguments before the severity; without one it is a bug
_MAKERS = {"At": 2, "Observation": 2}


@cache
def check_severities(module_name: str) -> tuple[Severity, ...]:
    """Return what the check of a file may say, gravest first."""
    tree = ast.parse(inspect.getsource(sys.modules[module_name]))
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found = {each for each in Severity if each.name in named}
    if not found or any(_has_default_severity(node) for node in ast.walk(tree)):
        found.add(Severity.BUG)
    return tuple(sorted(found, key=lambda each: each.rank))


def _has_default_severity(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MAKERS):
        return False
    given = len(node.args) > _MAKERS[node.func.id] or any(isinstance(each, ast.Starred) for each in node.args)
    return not given and "severity" not in {each.arg for each in node.keywords}
