# SPDX-License-Identifier: Apache-2.0
"""`python -m libraries.page PAGE`: run every block of a page, those that `make test` skips too, in a folder with the data sets."""

import os
import re
import sys
import tempfile
from pathlib import Path

from libraries.made import write_all

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def main(page: Path) -> None:
    """Run the blocks."""
    text = page.read_text("utf-8")
    with tempfile.TemporaryDirectory(prefix="page.") as folder:
        os.chdir(folder)
        write_all(Path(folder))
        names = {"__name__": "__main__"}
        for block in BLOCK.finditer(text):
            code = "\n" * text[: block.start(1)].count("\n") + block[1]
            exec(compile(code, str(page), "exec"), names)
        os.chdir("/")
    print(f"{page.name}: every block ran", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
