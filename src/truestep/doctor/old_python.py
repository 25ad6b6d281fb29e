# SPDX-License-Identifier: Apache-2.0
"""Text for an earlier Python, with what this one refuses written so that it parses, line for line.

It is only read, never run, and what is shown is the text as it stands: a `print` statement becomes an expression
of the same parts, in the same columns.
"""

import re

_REWRITTEN = [
    (
        re.compile(r"((?:^|[:;])[ \t]*)print[ \t]+(?=[^\s=(.,)\]:;#])", re.MULTILINE),
        r"\1print,",
    ),  # print "loss", loss
    (re.compile(r"((?:^|[:;])[ \t]*)print[ \t]+(?=\()", re.MULTILINE), r"\1print,"),  # print ("loss"), loss
    (re.compile(r"^([ \t]*except[ \t]+[^:#]+?)[ \t]*,[ \t]*(\w+)[ \t]*:", re.MULTILINE), r"\1 as \2:"),
    (re.compile(r"(\braise[ \t]+[\w.]+)[ \t]*,"), r"\1;"),
    (re.compile(r"\basync\b(?![ \t]+(?:def|for|with)\b)"), "async_"),  # x.cuda(async=True)
    (re.compile(r"(?<![\w.])0+([1-7][0-7]*)(?![\w.])"), r"0o\1"),
    (re.compile(r"(?<![\w.])(\d+)[lL]\b"), r"\1"),
    (re.compile(r"<>"), "!="),
    (re.compile(r"\bur(?=[\"'])"), "r"),
]
_INDENT = re.compile(r"^[ \t]*\t[ \t]*", re.MULTILINE)


def of_old_python(text: str) -> str:
    """Return a text that Python can't parse with the statements of Python 2, and `async` as a name, rewritten."""
    for pattern, new in _REWRITTEN:
        text = pattern.sub(new, text)
    return _INDENT.sub(lambda found: found[0].expandtabs(8), text)
