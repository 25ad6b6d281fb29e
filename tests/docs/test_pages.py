# SPDX-License-Identifier: Apache-2.0
"""The pages are complete and current: API, command line, figure, and whatever they refer to in the repository."""

import inspect
import pydoc
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import HAND_WRITTEN

import truestep
from truestep.engine.precision import APEX_LEVELS, MODES

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *HAND_WRITTEN,
]


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_api_page_has_every_public_name_once():
    documented = re.findall(r"^\.\. auto\w+:: truestep\.([\w.]+)", text_of("api.md"), re.MULTILINE)
    # what public functions return stands beside them, by the module that defines it
    modules = [name for name in truestep.__all__ if inspect.ismodule(getattr(truestep, name))]
    names = [
        name
        for name in documented
        if "." not in name or (name.count(".") == 1 and name.split(".")[0] in modules)
    ]
    pieces = [f"{module}.{name}" for module in modules for name in getattr(truestep, module).__all__]
    assert sorted(names) == sorted([*({*truestep.__all__} - {*modules}), *pieces])


def test_the_list_above_the_api_has_every_public_name_with_a_sentence():
    listed = runpy.run_path(str(DOCS / "generate_names.py"))
    rows = [line for line in listed["text"]().splitlines() if line.startswith("| {py:obj}")]
    documented = re.findall(
        r"^\.\. auto\w+:: truestep\.((?:(?:nn|lightning|transformers|accelerate)\.)?\w+)\b(?!\.)",
        text_of("api.md"),
        re.MULTILINE,
    )
    assert sorted(re.findall(r"<truestep\.([\w.]+)>", "\n".join(rows))) == sorted(documented)
    assert [row for row in rows if len(row.split(" | ")[1]) < 15] == []
    assert "```{include} names.inc" in text_of("api.md")


def test_pydoc_prints_the_signature_of_each_name_as_the_api_page_says():
    shown = re.search(
        r"^\$ python -m pydoc (truestep\.\w+)\n(.*?)^```", text_of("api.md"), re.MULTILINE | re.DOTALL
    )
    printed = {
        name: pydoc.plain(pydoc.render_doc(name, "Help on %s:")) for name in (shown[1], *public_names())
    }
    assert printed[shown[1]].split() == shown[2].split()
    unsigned = [
        name for name, text in printed.items() if not re.search(rf"\b{name.rpartition('.')[2]}\(", text)
    ]
    assert unsigned == []


def public_names():
    """Of ours alone: the classes for other libraries have those as bases, and pydoc would load these."""
    names = runpy.run_path(str(DOCS / "generate_names.py"))["names"]()
    return [
        f"truestep.{name}" for name in names if not re.match(r"(?:lightning|transformers|accelerate)\.", name)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_blocks_that_do_not_run_are_marked_and_the_others_left(page):
    marked = runpy.run_path(str(DOCS / "conf.py"))["marked"]
    text = page.read_text(encoding="utf-8")
    skipped = len(re.findall(r"<!--- skip: next .+? -->\s*\n```python\n", text))
    assert marked(text).count(":class: not-run") == skipped
    assert marked(text).count("\n```python\n") == text.count("\n```python\n") - skipped
    run_by = re.findall(r"<!--- run by (\S+) -->", text)
    assert [name for name in run_by if not (REPOSITORY / name).exists()] == []


def test_the_page_of_the_command_line_is_what_the_commands_say(tmp_path):
    page = tmp_path / "cli.md"
    subprocess.run([sys.executable, DOCS / "make_cli_page.py", page], check=True)
    assert text_of("cli.md") == page.read_text(encoding="utf-8"), "run: python docs/make_cli_page.py"


def test_the_figure_of_the_schedules_is_what_the_schedules_do():
    figure = runpy.run_path(str(DOCS / "make_schedule_figure.py"))["figure"]
    assert text_of("figures/schedules.svg") == figure(), "run: python docs/make_schedule_figure.py"


def test_the_figure_of_the_lock_and_the_ring_is_drawn_by_its_script_and_readable_on_a_phone():
    script = runpy.run_path(str(DOCS / "make_parallel_figure.py"))
    drawn = text_of("figures/parallel.svg")
    assert drawn == script["figure"](), "run: python docs/make_parallel_figure.py"
    assert set(re.findall(r'(?:fill|stroke)="([^"]+)"', drawn)) <= {"none", "currentColor", script["COLOUR"]}
    texts = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)"[^>]*>([^<]+)</text>', drawn)
    assert len(texts) > 10
    for x, anchor, text in texts:  # at 380 units across, 15 of them high: 11 pixels on a screen of 280
        width = 8 * len(text.replace("&#215;", "x"))
        assert float(x) + width / (2 if anchor == "middle" else 1) <= script["WIDTH"] + 30, text


def test_every_precision_has_its_row():
    rows = [line for line in text_of("choose-precision.md").splitlines() if line.startswith("| `")]
    assert [name for name in MODES | APEX_LEVELS if not any(f'`"{name}"`' in row for row in rows)] == []


def test_every_exception_is_in_the_tree():
    kinds = [
        name
        for name in truestep.__all__
        if isinstance(getattr(truestep, name), type) and issubclass(getattr(truestep, name), Exception)
    ]
    tree = (truestep.core.errors.__doc__ or "").split()
    assert [name for name in kinds if name not in tree] == []
    shown = re.search(r"^```text\n(TruestepError\n.*?)\n```", text_of("errors.md"), re.MULTILINE | re.DOTALL)
    assert shown[1] in (truestep.core.errors.__doc__ or "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_what_a_page_refers_to_exists(page):
    text = page.read_text(encoding="utf-8")
    files = re.findall(r"`((?:tests|benchmarks|examples|docs)/[\w/.-]+)`", text)
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    targets = re.findall(r"`make ([a-z]+)`", text)
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    missing = [name for name in files if not (REPOSITORY / name).exists()]
    missing += [
        f"{path}::{test}"
        for path, test in tests
        if not (REPOSITORY / path).exists()
        or f"def {test}(" not in (REPOSITORY / path).read_text(encoding="utf-8")
    ]
    missing += [f"make {target}" for target in targets if f"\n{target}:" not in makefile]
    assert missing == []
