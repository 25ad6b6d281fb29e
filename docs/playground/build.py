# SPDX-License-Identifier: Apache-2.0
"""Puts the playground together: `python docs/playground/build.py WHEEL PYODIDE OUT`.

PYODIDE is the folder `package` of the npm package pyodide; OUT gets everything the page needs, and nothing of it is
fetched from elsewhere when the page is used. pyflakes, which names undefined names, is the one of this Python.
"""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

from examples import examples

HERE = Path(__file__).parent
PAGE = ("index.html", "playground.css", "playground.js", "worker.js")
PYTHON = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)


def build(wheel: Path, pyodide: Path, out: Path) -> None:
    """Write the page, Python and the wheel to a folder that any web server can serve."""
    (out / "pyodide").mkdir(parents=True, exist_ok=True)
    for name in PAGE:
        shutil.copy(HERE / name, out / name)
    for name in PYTHON:
        shutil.copy(pyodide / name, out / "pyodide" / name)
    shutil.copy(wheel, out / "truestep.whl")
    shutil.make_archive(
        str(out / "pyflakes"), "zip", package_of("pyflakes").parent, "pyflakes"
    )
    (out / "examples.json").write_text(json.dumps(examples()), "utf-8")


def package_of(name: str) -> Path:
    """Return the folder of an installed package."""
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


if __name__ == "__main__":
    build(*map(Path, sys.argv[1:4]))
