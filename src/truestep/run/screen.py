# SPDX-License-Identifier: Apache-2.0
"""What a run shows on standard error: how far it is, and what is to be said of it."""

import sys

from truestep.core.text_formatting import printable_text
from truestep.run.progress import Progress


class RunConsole:
    """A bar, or lines now and then, and messages above it: what is wrong always, notes unless they are not wanted."""

    def __init__(self, *, shows_progress: bool, is_quiet: bool, is_main: bool) -> None:
        self._stream = sys.stderr if shows_progress and is_main else None
        self._is_quiet, self._is_silent = is_quiet, not is_main
        self.progress = Progress(None, None, None)
        self._said: set[str] = set()

    def begin(self, total_epochs: int, num_batches: int | None) -> None:
        """A loop begins."""
        self.progress.close()
        self.progress = Progress(total_epochs, num_batches, self._stream)

    def note(self, text: str) -> None:
        """Print what is worth knowing where nothing is wrong."""
        if not self._is_quiet:
            self.say(text)

    def say(self, text: str) -> None:
        """Print that a result is wrong or will be, that a run that goes on ends elsewhere, or that a line has no effect."""
        if not self._is_silent:
            self.progress.line(printable_text(f"truestep: {text}"))

    def say_once(self, text: str, key: str = "") -> None:
        """Print a message the first time that it, or one of its key, is said."""
        if not self.has_said(key or text):
            self._said.add(key or text)
            self.say(text)

    def has_said(self, key: str) -> bool:
        """Whether it was."""
        return key in self._said

    def silence(self) -> None:
        """In a forked process: show and say nothing more."""
        self._stream, self._is_silent = None, True
