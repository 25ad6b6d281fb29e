# SPDX-License-Identifier: Apache-2.0
"""Text for a later Python, with what this one refuses written so that it parses, line for line and column for column.

It is only read, never run, and what is shown is the text as it stands: type parameters become blanks, and the strings
within an f-string take the other quotes.
"""

import ast
import re

_PARAMETERS = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?def|class|type)[ \t]+\w+[ \t]*(\[[^\[\]\n]*(?:\[[^\[\]\n]*\][^\[\]\n]*)*\])",
    re.MULTILINE,
)
# `type Pair = ...` and `lazy import ...`: what stands behind the word is a statement by itself
_WORD_BEFORE = re.compile(r"^([ \t]*)(type +(?=\w+[ \t]*=[^=])|lazy +(?=(?:import|from)\b))", re.MULTILINE)
_NAMED = re.compile(r"\w+")
_STRING = re.compile(r"(?P<prefix>(?<!\w)[A-Za-z]{0,2})(?P<quote>\"\"\"|'''|\"|')")
_OPENING, _CLOSING = "([{", ")]}"


def rewrite_newer_python(text: str) -> str:
    """Return a text that Python can't parse with what later ones brought rewritten."""
    text = _PARAMETERS.sub(lambda found: found[0].replace(found[1], " " * len(found[1])), text)
    text = _WORD_BEFORE.sub(lambda found: f"{found[1]}0{' ' * (len(found[2]) - 2)};", text)
    try:
        return "".join(_FStringRewriter(text).rewritten())
    except IndexError:  # a string that does not end
        return text


def bind_type_parameters(tree: ast.Module, text: str) -> None:
    """Bind the names of type parameters in a tree that no longer has them, so that they are no unknown names."""
    found = [
        part.partition(":")[0].partition("=")[0]
        for each in _PARAMETERS.findall(text)
        for part in each[1:-1].split(",")
    ]
    for name in dict.fromkeys(word[0] for part in found if (word := _NAMED.search(part))):
        bound = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None))
        tree.body.insert(0, ast.fix_missing_locations(ast.copy_location(bound, tree.body[0])))


class _FStringRewriter:
    """Goes through a text from left to right, and writes each f-string as earlier versions take it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def rewritten(self) -> list[str]:
        """Return the pieces of the whole text."""
        found: list[str] = []
        while self.at < len(self.text):
            found.append(self._take_piece(""))
        return found

    def _take_piece(self, around: str) -> str:
        """Take a comment, a string or one character; `around` are the quotes of the f-strings around."""
        if self.text[self.at] == "#" and not around:
            return self._take_up_to(self.text.find("\n", self.at))
        if (string := _STRING.match(self.text, self.at)) is not None:
            return self._take_string(string, around)
        word = _NAMED.match(self.text, self.at)
        return self._take_up_to(word.end() if word is not None else self.at + 1)

    def _take_up_to(self, end: int) -> str:
        start, self.at = self.at, len(self.text) if end < 0 else end
        return self.text[start : self.at]

    def _take_string(self, opened: "re.Match[str]", around: str) -> str:
        prefix, quote = opened["prefix"].replace("t", "f").replace("T", "F"), opened["quote"]
        self.at = opened.end()
        written = quote if not around or quote[0] not in around else "'" if '"' in around else '"'
        is_formatted = "f" in prefix.lower()
        inside: list[str] = []
        while not self.text.startswith(quote, self.at):
            if self.text[self.at] == "\\":
                taken = self._take_up_to(self.at + 2)
                inside.append("__" if around else taken)
            elif is_formatted and self.text[self.at] == "{":
                inside.append(self._take_field(around + written[0]))
            else:
                inside.append(self._take_up_to(self.at + 1))
        self._take_up_to(self.at + len(quote))
        content = "".join(inside)
        if around and (written in around or written in content):  # no quotes are left: a number stands for it
            return "0".ljust(len(prefix) + 2 * len(quote) + len(content))
        return (
            prefix + written * (len(quote) // len(written)) + content + written * (len(quote) // len(written))
        )

    def _take_field(self, around: str) -> str:
        """Take `{...}` of an f-string, its format with it; `{{` is text."""
        if self.text.startswith("{{", self.at):
            return self._take_up_to(self.at + 2)
        found, depth = [self._take_up_to(self.at + 1)], 0
        while depth or self.text[self.at] not in "}:":
            depth += (self.text[self.at] in _OPENING) - (self.text[self.at] in _CLOSING)
            found.append(self._take_piece(around))
        if self.text[self.at] == ":":
            while self.text[self.at] != "}":
                is_inner = self.text[self.at] == "{"
                found.append(self._take_field(around) if is_inner else self._take_up_to(self.at + 1))
        return "".join([*found, self._take_up_to(self.at + 1)])
