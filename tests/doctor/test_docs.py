# SPDX-License-Identifier: Apache-2.0
"""The index of checks in the documentation is the one that their docstrings give."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs" / "generate_checks.py"


def test_the_page_of_checks_is_up_to_date():
    spec = importlib.util.spec_from_file_location("generate_checks", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.text() == script.PAGE.read_text("utf-8"), "run: python docs/generate_checks.py"
