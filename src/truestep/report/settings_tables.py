# SPDX-License-Identifier: Apache-2.0
"""Configuration, environment and choices as tables."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from truestep.core.charts.markup import Html, html_tag

LONG_FROM = 14  # a group of more rows is folded


def settings_table(value: Any) -> Html:
    """Return nested dicts as a table of their leaves; groups of many rows are folded."""
    if not isinstance(value, Mapping):
        value = {"value": value}
    simple = {key: each for key, each in value.items() if not _is_nested_settings(each)}
    groups = {key: each for key, each in value.items() if _is_nested_settings(each)}
    parts = [_key_value_table(simple)] if simple else []
    for key, each in groups.items():
        found = dict(setting_leaves(each))
        is_open = {} if len(found) > LONG_FROM else {"open": "open"}
        parts.append(
            html_tag("details", folded_heading(str(key), len(found)), _key_value_table(found), **is_open)
        )
    return html_tag("div", *parts, class_="facts")


def folded_heading(title: str, num_rows: int) -> Html:
    """Return the line that stays of a table that is folded."""
    return html_tag("summary", title, html_tag("span", f"{num_rows}", class_="count"))


def _is_nested_settings(value: Any) -> bool:
    return (isinstance(value, Mapping) and bool(value)) or (
        _is_non_string_sequence(value) and not _has_only_scalars(value)
    )


def _is_non_string_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _has_only_scalars(values: Sequence[Any]) -> bool:
    return not any(isinstance(each, Mapping) or _is_non_string_sequence(each) for each in values)


def setting_leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested dicts and lists, each with its place: `optimizer.betas`."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, each in items:
        name = f"{prefix}.{key}" if prefix else str(key)
        if _is_nested_settings(each):
            yield from setting_leaves(each, name)
        else:
            yield name, each


def _key_value_table(values: Mapping[str, Any]) -> Html:
    rows = (
        html_tag("tr", html_tag("th", str(key), scope="row"), html_tag("td", setting_text(each)))
        for key, each in values.items()
    )
    return html_tag("table", html_tag("tbody", *rows))


def setting_text(value: Any) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_non_string_sequence(value):
        return ", ".join(setting_text(each) for each in value) or "–"
    return value if isinstance(value, str) else json.dumps(value)


def report_choices_table(choices: Sequence[Mapping[str, Any]]) -> Html:
    """Return what the run decided by itself, each with its reason."""
    found = [[setting_text(choice.get(key)) for key in ("name", "value", "reason")] for choice in choices]
    rows = ([name, html_tag("b", value), reason] for name, value, reason in found)
    return report_table(("choice", "value", "reason"), rows)


def report_table(
    headings: Sequence[str], rows: Iterable[Sequence[Html | str]], *, num_labels: int = 1
) -> Html:
    """Return a table with a heading for each column; the first cells of a row are its labels."""
    head = html_tag("tr", *(html_tag("th", word, scope="col") for word in headings))
    body = (
        html_tag(
            "tr",
            *(html_tag("th", cell, scope="row") for cell in row[:num_labels]),
            *(html_tag("td", cell) for cell in row[num_labels:]),
        )
        for row in rows
    )
    return html_tag("table", html_tag("thead", head), html_tag("tbody", *body), class_="choices")
