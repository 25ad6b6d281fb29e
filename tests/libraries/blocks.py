# SPDX-License-Identifier: Apache-2.0
"""`python -m libraries.blocks PAGE...`: run every block of pages, also those that `make test` skips, a folder for each page."""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

BLOCK = re.compile(
    r"(?:<!--- skip: next (?P<reason>.+?) -->\s*\n)?^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL
)


def run_page(page: Path) -> None:
    """Run the blocks of a page one after another, and say how long those took that need a package."""
    text = page.read_text("utf-8")
    names = {"__name__": "__main__"}
    for block in BLOCK.finditer(text):
        started = time.perf_counter()
        code = "\n" * text[: block.start("code")].count("\n") + block["code"]
        exec(compile(code, str(page), "exec"), names)
        if block["reason"]:
            print(f"{page.name}: {block['reason']}: ran in {time.perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    for each in [Path(word).resolve() for word in sys.argv[1:]]:
        os.chdir(tempfile.mkdtemp(prefix="page."))  # it stays: runs of the page are closed when Python ends
        run_page(each)
