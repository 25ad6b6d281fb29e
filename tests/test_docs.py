# SPDX-License-Identifier: Apache-2.0
"""Every Python block in README and docs runs, page by page, in a folder of its own.

A block after the comment `<!--- skip: next REASON -->` is shown but not run; one after `<!--- run by TEST -->` has its own test.
One that begins with `# NAME.py` is written to that file, which later blocks run or import. A block of text below "It prints:" is
printed, whatever its line breaks.
"""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support import warm
from support.old_torch import SAYS_TODAYS

REPOSITORY = Path(__file__).parents[1]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
# pages in Chinese have the same blocks (tests/docs/test_languages.py)
PAGES = [page for page in PAGES if not {"_build", "zh"} & set(page.parts)]
BLOCK = re.compile(
    r"(?:<!--- (?:skip: next|run by) (?P<reason>.+?) -->\s*\n)?^```python\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


def words(text: str) -> str:
    return " ".join(text.split())


def blocks(page: Path):
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        yield match["reason"], "\n" * text[: match.start("code")].count("\n") + match["code"]


PRINTED = re.compile(r"^It prints:\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"\s*# (\w+\.py)\n")
NOT_WITH_OLDEST = {
    "docs/cookbook/named-axes.md": "torch 2.11 still has named tensors, and warns",
    "docs/howto/profile.md": "the profiler of torch 2.11 ends the process",
}
FRONT = ("README.md", "docs/tutorial.md")  # in each draw of the tests
WITH_CODE = [page for page in PAGES if any(reason is None for reason, _ in blocks(page))]


@pytest.fixture(autouse=True)
def modules_of_the_page_alone(tmp_path):
    """Pages write modules and import them: their paths and names are gone afterwards, also from Python's caches."""
    paths, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = paths
    sys.path_importer_cache.pop(".", None)
    for name in set(sys.modules) - modules:
        origin = getattr(sys.modules[name], "__file__", None) or ""
        if origin and (origin.startswith(str(tmp_path)) or not Path(origin).is_absolute()):
            del sys.modules[name]


def _forked(command, *more, run=subprocess.run, **options):
    """Run Python with torch loaded already, where a block starts one; other programs as they are."""
    if command[0] == sys.executable and not (more or options):
        return warm.run(*command[1:])
    return run(command, *more, **options)


def _marked(page):
    name = page.relative_to(REPOSITORY).as_posix()
    marks = [SAYS_TODAYS] if name in NOT_WITH_OLDEST else []
    return pytest.param(page, id=name, marks=[*marks, pytest.mark.whole] if name in FRONT else marks)


@pytest.mark.parametrize("page", [_marked(page) for page in WITH_CODE])
def test_every_block_of_the_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", _forked)
    before = dict(os.environ)
    names = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for reason, code in blocks(page):
            if reason is None and (file := FILE.match(code)):
                (tmp_path / file[1]).write_text(code, "utf-8")
                sys.path.insert(0, str(tmp_path))  # as Python does for a script beside it
            elif reason is None:
                exec(compile(code, str(page), "exec"), names)
    os.environ.clear()
    os.environ.update(before)
    printed = words(capsys.readouterr().out)
    assert [shown for shown in PRINTED.findall(page.read_text("utf-8")) if words(shown) not in printed] == []
