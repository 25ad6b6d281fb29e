# SPDX-License-Identifier: Apache-2.0
"""A page that is one file: it loads nothing, fits a phone and a wide screen, and is light or dark as the reader's system is."""

from importlib import resources

from truestep.core.charts import chart_style
from truestep.core.charts.markup import Html, join, tag

MARK = Html(
    '<svg class="mark" viewBox="0 0 24 24" aria-hidden="true"><path d="M2 20h6v-5h6v-5h6V5h2"/></svg>'
)


def document(title: str, *body: Html | None, style: str, script: str) -> str:
    """Return the whole page; `style` comes after the one that all pages share."""
    shared = chart_style() + resources.files("truestep.core.charts").joinpath("page.css").read_text("utf-8")
    head = join(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(shared + style)),
    )
    parts = join(*body, tag("script", Html(script)))
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', parts), lang='en')}\n"


def header(brand: str, name: str, summary: str) -> Html:
    """Return the top of a page: what made it, what it is about, and that in short."""
    return tag(
        "header",
        tag("p", MARK, brand, class_="brand"),
        tag("h1", name),
        tag("p", summary, class_="summary"),
    )
