# SPDX-License-Identifier: Apache-2.0
"""HTML made of calls; text that is not HTML already is escaped."""

import html
import json
from typing import Any

VOID = {"meta", "line", "rect", "path", "col", "img"}


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def join_html(*parts: str | None) -> Html:
    """Return the parts after one another; None is nothing."""
    return Html(
        "".join(
            part if isinstance(part, Html) else html.escape(part, quote=False)
            for part in parts
            if part is not None
        )
    )


def html_tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Html:
    """Return an element; `class_` is class, `stroke_width` is stroke-width, None leaves an attribute out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID and not children:
        return Html(f"<{name}{written}/>" if name != "meta" else f"<{name}{written}>")
    return Html(f"<{name}{written}>{join_html(*children)}</{name}>")


def html_data(value: Any, /, **attributes: str) -> Html:
    """Return a script element that holds the value as JSON; no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return html_tag("script", Html(text), type="application/json", **attributes)
