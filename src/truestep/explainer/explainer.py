# SPDX-License-Identifier: Apache-2.0
"""What an explained error is: how it is recognised, and which of its cases one run is.

One file under `errors/<topic>/` holds one error. Its docstring is its page. None imports torch at module level.
"""

import re
from abc import ABC
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

from truestep.doctor.page import check_name
from truestep.explainer.case_facts import ErrorCaseFacts
from truestep.explainer.crash import Crash
from truestep.explainer.page import ErrorCase, ErrorPage, parse_error_page

Match = re.Match[str]

__all__ = ["Crash", "Explainer", "Match"]  # what an error's file is made of


class Explainer(ABC):
    """One error: its page, the texts it is known by, and its cause in a run."""

    types: ClassVar[tuple[str, ...]] = ()  # names of exception types; any where empty
    messages: ClassVar[tuple[str, ...]]  # regular expressions, one of which is found in the message
    anywhere: ClassVar[bool] = False  # the message stands in logs without an exception
    is_consequence: ClassVar[bool] = False  # another error, of another process or before it, led to this one
    checks: ClassVar[tuple[str, ...]] = ()  # codes of the doctor's checks that find its usual causes
    not_in_a_log: ClassVar[str] = "the shapes, dtypes and devices of the values on that line"
    # further expressions, whose groups are facts where they are in the text
    besides: ClassVar[tuple[str, ...]] = ()
    verdict: ClassVar[str] = ""  # the question of `truestep env` that its cases name as {verdict}

    @classmethod
    @cache
    def page(cls) -> ErrorPage:
        """Return the parts of the docstring."""
        return parse_error_page(cls.__doc__ or "")

    @classmethod
    def name(cls) -> str:
        """Return the error's name, as the command line takes it."""
        return check_name(cls.__name__)

    @classmethod
    def match(cls, crash: Crash) -> Match | None:
        """Return where the message is this error's; None if it is another's."""
        if cls.types and crash.type_names and not _has_wanted_short_name(crash.type_names, cls.types):
            return None
        return cls.search(crash.message)

    @classmethod
    def search(cls, text: str) -> Match | None:
        """Return where a text holds one of the messages."""
        for pattern in _compiled_message_patterns(cls):
            found = pattern.search(text)
            if found:
                return found
        return None

    def cause(self, crash: Crash, match: Match) -> ErrorCase | None:
        """Return the likeliest cause in this run, its facts filled in; None where nothing is known beyond the page.

        It is the first of the page's cases that fits, whose facts are all known.
        """
        found = [match, *filter(None, (re.search(pattern, crash.text) for pattern in self.besides))]
        named = [each.groupdict().items() for each in found]
        groups = {name: value for each in named for name, value in each if value is not None}
        groups |= self.facts(crash, match)
        told = "\n".join([match[0], *(f"{name}={value};" for name, value in groups.items())])
        facts = ErrorCaseFacts(crash, groups, self.concerns, self.verdict)
        for case in self.page().cases:
            with suppress(KeyError):
                if case.is_in(told):
                    says, fix = (
                        _fix_indefinite_articles(each.format_map(facts)) for each in (case.says, case.fix)
                    )
                    return replace(case, says=says, fix=fix)
        return None

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        """Return what else is known of this run, by the names that the cases have for it."""
        return {}

    def concerns(self, tensor: Any) -> bool:
        """Whether a tensor on the user's line is one that the cases mean by {tensor}."""
        return True


def _fix_indefinite_articles(text: str) -> str:
    """Return a text with "an" where a fact begins with a vowel: a case says "a {kind}"."""
    return re.sub(r"\b([Aa]) (?=[aeioAEIO]\w)", r"\1n ", text)


@cache
def _compiled_message_patterns(error: type[Explainer]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in error.messages)


def _has_wanted_short_name(names: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return any(name.rpartition(".")[2] in wanted for name in names)
