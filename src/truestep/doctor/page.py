# SPDX-License-Identifier: Apache-2.0
"""A check's page is its docstring: one sentence, then Why, Bad, Good, Fix and Evidence."""

import inspect
import re
import textwrap
from dataclasses import dataclass

SECTIONS = ("Why", "Bad", "Good", "Fix", "Evidence")
MARK = "# here"  # ends the lines of Bad at which the finding is expected

# Names that every example may use without saying where they come from.
PRELUDE = """\
import copy, math, os, random
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler
"""


@dataclass(frozen=True)
class CheckPage:
    """The parts of a check's docstring."""

    summary: str
    why: str
    bad: str
    good: str
    fix: str
    evidence: str  # where it was true in code that its author did not know, or why it stays without

    @property
    def marked_lines(self) -> list[int]:
        """Return the lines of `bad`, counted from 1, that carry the mark."""
        return [number for number, line in enumerate(self.bad.splitlines(), 1) if line.endswith(MARK)]

    def examples(self) -> list[tuple[str, str]]:
        """Return "Bad" and "Good" with their code, in which the lines that are found point at themselves."""
        shown = self.bad.replace(MARK, "# <- here")
        return [("Bad", shown), ("Good", self.good)]

    def markdown(self, language: str = "python") -> str:
        """Return the page in Markdown, its code in blocks of this language."""
        blocks = [f"**{name}**\n\n```{language}\n{code}```\n" for name, code in self.examples()]
        parts = [
            f"{self.summary}\n",
            f"**Why**: {self.why}\n",
            *blocks,
            f"**Fix**: {self.fix}\n",
            f"**Evidence**: {self.evidence}\n",
        ]
        return "\n".join(parts)


def parse_check_page(docstring: str) -> CheckPage:
    """Split a docstring into its page.

    Raises:
        ValueError: a section is missing or empty.
    """
    text = inspect.cleandoc(docstring)
    pieces = re.split(rf"^({'|'.join(SECTIONS)}):", text, flags=re.MULTILINE)
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    missing = [name for name in SECTIONS if not sections.get(name, "").strip()]
    if missing:
        raise ValueError(f"the page {pieces[0].strip()!r} lacks the section {', '.join(missing)}")
    prose = {name: " ".join(sections[name].split()) for name in ("Why", "Fix", "Evidence")}
    code = {name: textwrap.dedent(sections[name]).strip("\n") + "\n" for name in ("Bad", "Good")}
    summary = " ".join(pieces[0].split())
    return CheckPage(summary, prose["Why"], code["Bad"], code["Good"], prose["Fix"], prose["Evidence"])


def check_name(class_name: str) -> str:
    """Turn BackwardWithoutZeroGrad into backward-without-zero-grad."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", class_name).lower()
