# SPDX-License-Identifier: Apache-2.0
"""The pages of errors in the documentation are the ones that their docstrings give."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs" / "generate_errors.py"


def test_the_page_of_errors_is_up_to_date():
    spec = importlib.util.spec_from_file_location("generate_errors", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.text() == script.PAGE.read_text("utf-8"), "run: python docs/generate_errors.py"
