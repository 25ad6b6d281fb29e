# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings; built with -n -W, so that a broken reference is an error."""

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

project = "Truestep"
author = "The Truestep authors"
copyright = "2026, the Truestep authors"  # noqa: A001
release = version = importlib.metadata.version("truestep")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# What was decided and what was tried is read in the repository, and is no part of the manual.
exclude_patterns = ["_build", "README.md", "design.md", "log.md"]
html_theme = "furo"
pygments_dark_style = "a11y-high-contrast-dark"  # the theme's own underlines imports, as if they were links
html_title = "Truestep"
html_static_path = ["static"]
html_css_files = ["blocks.css"]
autodoc_member_order = "bysource"
default_role = "code"  # docstrings write `names` as Markdown does
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
intersphinx_mapping: dict[str, tuple[str, None]] = {}
# Types of torch, numpy and the standard library have no inventory without a network; every name of our own is checked.
nitpick_ignore_regex = [
    (r"py:.*", r"(?!truestep).*"),
    (r"py:class", r"truestep\.nn\.standardizer\.Array"),  # a type variable
]


NOT_RUN = re.compile(r"^<!--- skip: next (.+?) -->\s*\n```python\n", re.MULTILINE)


# A check is named by its code, which `truestep checks CODE` takes where the pages are read as files. Here it leads to its page, but
# for what stands in code, in a heading or in another link.
CHECK = re.compile(
    r"(?P<left>^ *```.*?^ *```|`[^`\n]+`|^#.*?$|\[[^\]]*\]\([^)]*\)|^---\n.*?^---$|^\([A-Z]+\d{3}\)=$)"
    r"|(?<![A-Za-z0-9])(?P<code>[A-Z]{3,5}\d{3})(?![A-Za-z0-9])",
    re.MULTILINE | re.DOTALL,
)


def linked(found: re.Match[str]) -> str:
    code = found["code"]
    return (
        found["left"] or f"[{code}](/checks/{code}.md)"
    )  # a page beside it of that name makes #CODE ambiguous


def marked(page: str) -> str:
    """Have each block that no test runs look different, and say why it is not run; link codes to the pages of checks."""
    page = CHECK.sub(linked, page)
    return NOT_RUN.sub(
        r'```{code-block} python\n:class: not-run\n:caption: "\1"\n\n', page
    )


def setup(app: Any) -> None:
    """Write the pages of checks and errors, and the list of names, from their docstrings before the pages are looked for."""
    sys.path.insert(0, str(Path(__file__).parent))
    import generate_checks
    import generate_errors
    import generate_names

    app.connect(
        "source-read",
        lambda _app, _name, source: source.__setitem__(0, marked(source[0])),
    )
    app.connect("builder-inited", lambda _app: generate_checks.write())
    app.connect("builder-inited", lambda _app: generate_errors.write())
    app.connect("builder-inited", lambda _app: generate_names.write())
