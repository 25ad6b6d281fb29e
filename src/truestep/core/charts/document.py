# SPDX-License-Identifier: Apache-2.0
"""A page that is one file: it loads nothing, fits a phone and a wide screen, and is light or dark as the reader's system is."""

from truestep.core.charts import chart_css
from truestep.core.charts.markup import Html, html_tag, join_html

MARK = Html(
    '<svg class="mark" viewBox="0 0 24 24" aria-hidden="true"><path d="M2 20h6v-5h6v-5h6V5h2"/></svg>'
)


def html_document(title: str, *body: Html | None, style: str, script: str) -> str:
    """Return the whole page; `style` comes after the one that all pages share."""
    shared = chart_css() + chart_css("page.css")
    head = join_html(
        html_tag("meta", charset="utf-8"),
        html_tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        html_tag("meta", name="color-scheme", content="light dark"),
        html_tag("title", title),
        html_tag("style", Html(shared + style)),
    )
    parts = join_html(*body, html_tag("script", Html(script)))
    page = html_tag("html", html_tag("head", head), html_tag("body", parts), lang="en")
    return f"<!doctype html>\n{page}\n"


def html_header(brand: str, name: str, summary: str) -> Html:
    """Return the top of a page: what made it, what it is about, and that in short."""
    top, short = html_tag("p", MARK, brand, class_="brand"), html_tag("p", summary, class_="summary")
    return html_tag("header", top, html_tag("h1", name), short)
