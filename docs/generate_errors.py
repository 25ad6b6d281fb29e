# SPDX-License-Identifier: Apache-2.0
"""Writes explained.md, the index and the pages of all explained errors, when the documentation is built."""

import sys
from itertools import groupby
from pathlib import Path

from truestep.explainer.catalogue import error_topic_folder, explained_errors
from truestep.explainer.explainer import Explainer

PAGE = Path(__file__).with_name("explained.md")
INTRODUCTION = """\
<!-- written by docs/generate_errors.py from the docstrings when the documentation is built -->

# Explained errors

What `truestep explain` and the notes of [Explain an error](explain.md) know. The examples are tests: *Raises* raises the error on
the installed torch, *Works* runs. Where a CPU can't raise it, *Recorded* is the text as it was printed.
"""


def page_of(error: type[Explainer]) -> str:
    page = error.page()
    blocks = [
        f"*{name}:*\n\n```{{code-block}} {language}\n{code}```\n"
        for name, language, code in (
            ("Raises", "python", page.raises),
            ("Recorded", "text", page.recorded),
            ("Works", "python", page.works),
        )
        if code
    ]
    checks = ", ".join(f"[{code}](#{code})" for code in error.checks)
    found = (
        [f"Checks of the doctor that find its usual causes: {checks}.\n"]
        if checks
        else []
    )
    cases = [f"* {each}" for each in page.cases_to_show()]
    told = ["In one run it may say:\n", *cases, ""] if cases else []
    return "\n".join(
        [
            f"({error.name()})=\n### {error.name()}\n",
            f"{page.summary} {page.means[:1].upper()}{page.means[1:]}\n",
            *blocks,
            f"{page.fix[:1].upper()}{page.fix[1:]}\n",
            *told,
            *found,
        ]
    )


def text() -> str:
    """Return the whole page."""
    every = sorted(
        explained_errors().values(),
        key=lambda error: (error_topic_folder(error), error.name()),
    )
    rows = [
        f"| [{each.name()}](#{each.name()}) | {each.page().summary} |" for each in every
    ]
    parts = [
        INTRODUCTION,
        f"There are {len(every)}.\n",
        "| error | what happened |\n|---|---|\n" + "\n".join(rows) + "\n",
    ]
    for topic, members in groupby(every, key=error_topic_folder):
        parts.append(
            f"## {topic.upper() if topic in ('amp', 'cuda') else topic.capitalize()}\n"
        )
        parts += [page_of(each) for each in members]
    return "\n".join(parts)


def write() -> None:
    """Write the page where it is not as it should be: a build takes what has not changed from its cache."""
    wanted = text()
    if not PAGE.exists() or PAGE.read_text("utf-8") != wanted:
        PAGE.write_text(wanted, "utf-8")


if __name__ == "__main__":
    write()
    sys.stderr.write(f"{PAGE}: {len(explained_errors())} errors\n")
