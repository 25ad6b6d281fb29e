# SPDX-License-Identifier: Apache-2.0
"""The comparisons with other libraries, which only run where those are installed: they compile, and the page has them all."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PEERS = REPOSITORY / "benchmarks" / "peers"
SCRIPTS = {path.name for path in PEERS.glob("*.py") if '__name__ == "__main__"' in path.read_text("utf-8")}


@pytest.mark.parametrize("path", sorted(PEERS.glob("*.py")), ids=lambda path: path.name)
def test_a_comparison_compiles_and_its_docstring_says_how_to_run_it(path):
    tree = ast.parse(path.read_text("utf-8"))
    compile(tree, str(path), "exec")
    assert (f"`python benchmarks/peers/{path.name}`" in ast.get_docstring(tree)) == (path.name in SCRIPTS)


@pytest.mark.parametrize("place", ["docs/peers.md", "benchmarks/Makefile"])
def test_every_comparison_is_named_and_no_other(place):
    named = set(re.findall(r"\bpeers/(\w+\.py)", (REPOSITORY / place).read_text("utf-8")))
    assert named == SCRIPTS
