# SPDX-License-Identifier: Apache-2.0
"""The page of errors that the documentation's build writes has each of them once, in its index and by itself."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from truestep.explainer.catalogue import explained_errors

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "docs" / "generate_errors.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("generate_errors", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_error_is_in_the_index_and_has_its_part(script):
    text = script.text()
    for each in explained_errors().values():
        assert text.count(f"| [{each.name()}](#{each.name()}) |") == 1
        assert text.count(f"({each.name()})=\n### {each.name()}") == 1
        assert each.page().summary in text


def test_the_page_is_written_by_the_build_and_not_kept(script):
    name = script.PAGE.relative_to(REPOSITORY).as_posix()
    kept = subprocess.run(
        ["git", "ls-files", name], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert kept.stdout == ""
    assert name in (REPOSITORY / ".gitignore").read_text("utf-8").splitlines()
    assert "generate_errors.write()" in (REPOSITORY / "docs" / "conf.py").read_text("utf-8")
