# SPDX-License-Identifier: Apache-2.0
"""Where a check's page is: on the terminal, which always works, and in the built documentation where that is known."""

import os
from pathlib import Path

BASE = "TRUESTEP_DOCS"  # the address, or the folder, of the built documentation


def check_docs_address(code: str) -> str | None:
    """Return the address of a check's page in the documentation that `TRUESTEP_DOCS` names, None without it."""
    base = os.environ.get(BASE, "")
    if not base:
        return None
    if "://" not in base:
        base = Path(base).expanduser().resolve().as_uri()
    return f"{base.rstrip('/')}/checks/{code}.html"


def check_help(code: str) -> str:
    """Return where a finding's reader learns more: the page's address, or else the command that prints the page."""
    return check_docs_address(code) or f"truestep checks {code}"
