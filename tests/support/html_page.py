# SPDX-License-Identifier: Apache-2.0
"""A page of HTML as a test asks about it."""

import json
from html.parser import HTMLParser

import pytest


class Page(HTMLParser):
    """Collects a page's elements and its text, and checks that elements are closed in order."""

    VOID = ("meta", "line", "rect", "path")

    def __init__(self, html):
        super().__init__()
        self.open, self.elements, self.words, self.data = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)
        elif self.open and self.open[-1] == "script" and self.elements[-1][1].get("type"):
            self.data.append(json.loads(data, parse_constant=pytest.fail))

    def all(self, tag, **attributes):
        return [found for name, found in self.elements if name == tag and attributes.items() <= found.items()]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())
