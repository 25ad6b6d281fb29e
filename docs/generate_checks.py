# SPDX-License-Identifier: Apache-2.0
"""Writes checks.md, a table of all checks, and checks/CODE.md, the page of each, when the documentation is built."""

import sys
from itertools import groupby
from pathlib import Path

from truestep.doctor.catalogue import check_topic, checks
from truestep.doctor.check import Check

TABLE = Path(__file__).with_name("checks.md")
PAGES = Path(__file__).with_name("checks")
WRITTEN = "written by docs/generate_checks.py from the docstrings when the documentation is built"
WAYS = {"read": "reading", "run": "running", "both": "reading and by running"}
INTRODUCTION = f"""\
<!-- {WRITTEN} -->

# Checks

Each check names one mistake, and has a page with an example that it finds and one that is right: both are its tests.

*read*: found in the source, by `truestep read` and `truestep doctor`; *run*: found while the script runs, by `truestep doctor`;
*both*: in both ways. The severity is what a finding may be, the gravest first; a bug that rests on a name alone is told as a risk.
On the terminal `truestep checks GRAD` lists the checks whose codes begin so, and `truestep checks GRAD001` shows the page of one.
"""


def how(check: type[Check]) -> str:
    ways = check.found_by()
    return ways[0] if len(ways) == 1 else "both"


def severity(check: type[Check]) -> str:
    return ", ".join(check.severities())


def page_of(check: type[Check]) -> str:
    """Return the page of one check; it stands in no list of pages, as the table is that."""
    return "\n".join(
        [
            "---\norphan: true\n---\n",
            f"<!-- {WRITTEN} -->\n",
            f"({check.code})=\n# {check.code}: {check.name()}\n",
            f"*Severity: {severity(check)}. Found by {WAYS[how(check)]}. [All checks](../checks.md).*\n",
            check.page().markdown("{code-block} python"),
        ]
    )


def table() -> str:
    """Return the table of all checks, by topic."""
    every = sorted(
        checks().values(), key=lambda check: (check_topic(check), check.code)
    )
    parts = [INTRODUCTION, f"There are {len(every)}.\n"]
    for topic, members in groupby(every, key=check_topic):
        parts.append(f"## {topic.capitalize()}\n")
        parts.append("| code | severity | how | mistake |\n|---|---|---|---|")
        parts += [
            f"| [{each.code}](checks/{each.code}.md) | {severity(each)} | {how(each)} | {each.page().summary} |"
            for each in members
        ]
        parts.append("")
    return "\n".join(parts)


def pages() -> dict[Path, str]:
    """Return every file that is to be there, with its text."""
    return {TABLE: table()} | {
        PAGES / f"{code}.md": page_of(check) for code, check in checks().items()
    }


def write() -> None:
    """Write the pages that are not as they should be: a build takes what has not changed from its cache."""
    wanted = pages()
    PAGES.mkdir(exist_ok=True)
    for path in PAGES.glob("*.md"):
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
    sys.stderr.write(f"{TABLE}: {len(checks())} checks\n")
