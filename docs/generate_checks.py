# SPDX-License-Identifier: Apache-2.0
"""Writes checks.md, the index and the pages of all checks, when the documentation is built."""

import sys
from itertools import groupby
from pathlib import Path

from truestep.doctor.catalogue import checks, topic_of
from truestep.doctor.check import Check
from truestep.doctor.page import MARK

PAGE = Path(__file__).with_name("checks.md")
INTRODUCTION = """\
<!-- written by docs/generate_checks.py from the docstrings when the documentation is built -->

# Checks

Each check names one fault. *read* means that it is found in the source (`truestep read`, `truestep doctor`),
*watch* that it is seen while the script runs, *probe* that the model is tried out at the first step. The
examples are the checks' own tests: Bad gives exactly this finding at the marked line, Good gives none from
any check.
"""


def page_of(check: type[Check]) -> str:
    page = check.page()
    blocks = [
        f"*{name}:*\n\n```{{code-block}} python\n{code.replace(MARK, '# <- here')}```\n"
        for name, code in (("Bad", page.bad), ("Good", page.good))
    ]
    return "\n".join(
        [
            f"({check.code})=\n### {check.code} {check.name()}\n",
            f"{page.summary} ({', '.join(check.found_by())})\n",
            f"{page.why}\n",
            *blocks,
            f"{page.fix}\n",
        ]
    )


def text() -> str:
    """Return the whole page."""
    every = sorted(checks().values(), key=lambda check: (topic_of(check), check.code))
    rows = [
        f"| [{each.code}](#{each.code}) | {', '.join(each.found_by())} | {each.page().summary} |"
        for each in every
    ]
    parts = [
        INTRODUCTION,
        f"There are {len(every)}.\n",
        "| code | how | fault |\n|---|---|---|\n" + "\n".join(rows) + "\n",
    ]
    for topic, members in groupby(every, key=topic_of):
        parts.append(f"## {topic.capitalize()}\n")
        parts += [page_of(each) for each in members]
    return "\n".join(parts)


def write() -> None:
    """Write the page where it is not as it should be: a build takes what has not changed from its cache."""
    wanted = text()
    if not PAGE.exists() or PAGE.read_text("utf-8") != wanted:
        PAGE.write_text(wanted, "utf-8")


if __name__ == "__main__":
    write()
    sys.stderr.write(f"{PAGE}: {len(checks())} checks\n")
