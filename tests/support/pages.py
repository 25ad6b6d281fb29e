# SPDX-License-Identifier: Apache-2.0
"""The documentation's pages that are written by hand: the same whether or not the others were generated before."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
GENERATED = "<!-- written by docs/generate_"

HAND_WRITTEN = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if "_build" not in page.parts and GENERATED not in page.read_text("utf-8")[:200]
]
