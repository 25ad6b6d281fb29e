# SPDX-License-Identifier: Apache-2.0
"""`make new-check`, `make new-error`, `make new-clip`: what they write is found by the catalogues, and waits to be filled in."""

import ast
import importlib.util
import re
import shutil
from pathlib import Path

import pytest
import torch

import truestep as ts
from truestep.doctor.catalogue import all_check_classes, checks
from truestep.doctor.page import parse_check_page
from truestep.doctor.retired import RETIRED
from truestep.explainer.page import parse_error_page as parse_error

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "tools" / "scaffold.py"

# Numbers that were set aside while several people wrote checks, and never given. None may be added.
NEVER_GIVEN = {
    "DATA": range(24, 30),
    "EVAL": range(19, 30),
    "GRAD": range(31, 40),
    "LOSS": range(27, 30),
    "PARAM": range(24, 30),
}


@pytest.fixture(scope="module")
def scaffold():
    spec = importlib.util.spec_from_file_location("scaffold", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path, scaffold):
    for home in (scaffold.CHECKS, scaffold.ERRORS):
        shutil.copytree(REPOSITORY / home, tmp_path / home, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (scaffold.CHECKS.parent / "retired.py", scaffold.NAMES, scaffold.CLIP_PAGE, scaffold.API):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / file, tmp_path / file)
    return tmp_path


def test_a_code_is_given_once_and_never_again():
    written = [check.code for check in all_check_classes()]
    assert sorted(written) == sorted(set(written)), (
        "two checks with one code: `make new-check` gives the next"
    )
    assert not set(written) & set(RETIRED)


def test_codes_are_numbered_without_gaps():
    given: dict[str, set[int]] = {}
    for code in (*checks(), *RETIRED):
        prefix, number = re.fullmatch(r"([A-Z]+)(\d{3})", code).groups()
        given.setdefault(prefix, set()).add(int(number))
    for prefix, numbers in given.items():
        assert set(range(1, max(numbers) + 1)) - numbers == set(NEVER_GIVEN.get(prefix, ())), prefix


@pytest.mark.parametrize("kind", ["read", "watch", "probe"])
def test_a_new_check_has_the_next_code_a_page_and_a_test(kind, root, scaffold):
    file, cases = scaffold.start(root, "check", "loss", "LossSummed", kind)
    tree = ast.parse((root / file).read_text("utf-8"))
    (made,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    page = parse_check_page(ast.get_docstring(made, clean=False))
    assert page.marked_lines == [1]
    given = max(code for code in (*checks(), *RETIRED) if code.startswith("LOSS"))
    code = next(node.value.value for node in made.body if isinstance(node, ast.Assign))
    assert int(code[-3:]) == int(given[-3:]) + 1
    assert (file.stem, cases.stem) == ("loss_summed", "loss_summed")
    assert scaffold.next_code(root, "loss") == f"LOSS{int(code[-3:]) + 1:03}"
    for node in tree.body:  # what it imports is there
        if isinstance(node, ast.ImportFrom) and node.module.startswith("truestep"):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, each.name) for each in node.names)


def test_a_code_that_is_retired_is_not_given_again(root, scaffold):
    retired = root / scaffold.CHECKS.parent / "retired.py"
    retired.write_text(retired.read_text("utf-8") + "LOSS777 loss-drawn: a code that went.\n", "utf-8")
    assert scaffold.next_code(root, "loss") == "LOSS778"


def test_a_new_clip_has_its_four_places_and_works(root, scaffold):
    written = scaffold.start_clip(root, "ClipToMedian")
    assert written == [scaffold.CLIPS / "to_median.py", scaffold.NAMES, scaffold.CLIP_PAGE, scaffold.API]
    texts = [(root / each).read_text("utf-8") for each in written]
    assert all("ClipToMedian" in each for each in texts)
    lines = [each for each in texts[1].splitlines() if each.startswith("from ")]
    assert lines == sorted(lines)
    made: dict = {}
    exec(texts[0], made)
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    assert float(ts.clip_gradients([parameter], made["ClipToMedian"](1.0))) == 5
    torch.testing.assert_close(parameter.grad, torch.tensor([0.6, 0.8]))
    with pytest.raises(SystemExit, match="already"):
        scaffold.start_clip(root, "ClipToMedian")
    with pytest.raises(SystemExit, match="write it as ClipToMedian"):
        scaffold.start_clip(root, "Median")


def test_a_new_error_has_a_page(root, scaffold):
    (file,) = scaffold.start(root, "error", "cuda", "DeviceLost", "read")
    tree = ast.parse((root / file).read_text("utf-8"))
    (made,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    page = parse_error(ast.get_docstring(made, clean=False))
    assert page.raises
    assert page.works


@pytest.mark.parametrize(
    ("what", "topic", "name", "says"),
    [
        ("check", "nowhere", "LossSummed", "There are: checkpoints, data"),
        ("check", "loss", "loss_summed", "write it as LossSummed"),
        ("check", "loss", "ShapesBroadcast", "already"),
        ("error", "loss", "DeviceLost", "There are: amp"),
    ],
)
def test_what_cannot_be_started_is_said_and_nothing_is_written(what, topic, name, says, root, scaffold):
    before = sorted(root.rglob("*"))
    with pytest.raises(SystemExit, match=says):
        scaffold.start(root, what, topic, name, "read")
    assert sorted(root.rglob("*")) == before
