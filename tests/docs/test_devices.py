# SPDX-License-Identifier: Apache-2.0
"""Each page that says something of a device stands in the one table of where that was seen."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "selfcheck.md"
DEVICES = re.compile(r"\b(cuda|gpus?|mps|xpu)\b", re.IGNORECASE)
NAMES_ALONE = {
    "api.md": "names of functions",
    "cli.md": "made from the commands' help",
    "design.md": "decisions",
    "errors.md": "names of exceptions",
    "find.md": "the way to pages",
    "index.md": "the way to pages",
    "install.md": "which build to install; it says that no GPU has run the tests",
    "log.md": "what was measured, with the machine beside it",
    "selfcheck.md": "the page itself",
    "symptoms.md": "the way to pages",
    "tutorial.md": "the way to pages",
}
TRANSLATED = "zh/"
BUILT = ("_build", "checks", "checks.md", "explained.md")  # `make docs` writes these


def test_the_table_has_each_page_that_says_something_of_a_device():
    speaking = {
        path.relative_to(DOCS).as_posix()
        for path in DOCS.rglob("*.md")
        if path.relative_to(DOCS).parts[0] not in BUILT and DEVICES.search(path.read_text("utf-8"))
    }
    _, _, table = PAGE.read_text("utf-8").partition("| page | seen on a stand-in | read only |")
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", table))
    assert listed == {page for page in speaking - NAMES_ALONE.keys() if not page.startswith(TRANSLATED)}
    assert speaking >= NAMES_ALONE.keys()
