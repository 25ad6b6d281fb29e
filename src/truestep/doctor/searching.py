# SPDX-License-Identifier: Apache-2.0
"""Finds checks by words of their pages: what `truestep checks shuffle` lists."""

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from itertools import product

from truestep.core.errors import did_you_mean
from truestep.doctor.catalogue import check_topic, checks
from truestep.doctor.check import Check

_ENDING = re.compile(r"(?<=\w{3})(ing|ed|es|s|e)$")  # of what keeps three letters
_CODE = re.compile(r"([a-zA-Z]+)[-_ ]*([0-9]{1,9})")
# each page has a word of its own for what is not there
_ABSENT = frozenset(["missing", "forgot", "forgotten", "forget", "without", "no", "lack", "lacks"])
_FILLING = _ABSENT.union(
    ["a", "an", "and", "in", "is", "it", "my", "not", "of", "on", "or", "the", "to", "too", "with"]
)


def checks_with_words(text: str) -> list[type[Check]]:
    """Return the checks whose name, topic or first sentence has all these words; else those whose page has them.

    A word stands for its other forms: shuffle for shuffled and shuffling, zero_grad for zero-grad.
    """
    words = _words(text)
    stems = [_ENDING.sub("", word) for word in words if word not in _FILLING or _FILLING.issuperset(words)]
    return (
        (_checks_containing(stems, _check_headline) or _checks_containing(stems, _check_page_text))
        if stems
        else []
    )


def no_such_check_message(text: str) -> str:
    """Return what to write where no check has a code, a name or words like these: each word is taken for its nearest."""
    said = f"There is no check {text!r}."
    if (code := _code_with_zeros(text)) in checks():
        return f"{said} Did you mean `truestep checks {code}`? `truestep checks` lists all."
    if parted := _split_joined_words(text):
        return f"{said} Did you mean `truestep checks {parted}`? `truestep checks` lists all."
    known = {word for check in checks().values() for word in _words(_check_headline(check))}
    close = [get_close_matches(word, known, n=1, cutoff=0.7) or [word] for word in _words(text)]
    meant = " ".join(word for (word,) in close)
    if checks_with_words(meant):
        return f"{said} Did you mean `truestep checks {meant}`? `truestep checks` lists all."
    near = did_you_mean(text, [*checks(), *(each.name() for each in checks().values())])
    return f"{said} {near}`truestep checks` lists all, `truestep checks shuffle` those with a word."


def _split_joined_words(text: str) -> str:
    """Return words that are written as one, zero grad of zerograd, as they stand side by side in the line of a check."""
    whole = "".join(_words(text))
    for check in checks().values():
        words = _words(_check_headline(check))
        for number, size in product(range(len(words)), (2, 3)):
            if whole and "".join(words[number : number + size]) == whole:
                return " ".join(words[number : number + size])
    return ""


def _code_with_zeros(text: str) -> str:
    """Return a code whose number lacks its zeros, or is parted from its letters, as codes are written: GRAD020 for grad-20."""
    parted = _CODE.fullmatch(text.strip())
    return f"{parted[1].upper()}{int(parted[2]):03d}" if parted else ""


def _checks_containing(stems: Sequence[str], text_of: Callable[[type[Check]], str]) -> list[type[Check]]:
    texts = {check: f" {' '.join(_words(text_of(check)))}" for check in checks().values()}
    return [check for check, text in texts.items() if all(f" {stem}" in text for stem in stems)]


def _check_headline(check: type[Check]) -> str:
    return f"{check.name()} {check_topic(check)} {check.page().summary}"


def _check_page_text(check: type[Check]) -> str:
    page = check.page()
    return " ".join([_check_headline(check), page.why, page.fix, *(code for _, code in page.examples())])


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())
