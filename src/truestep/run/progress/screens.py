# SPDX-License-Identifier: Apache-2.0
"""Where progress is shown: a terminal, a notebook's cell, a stream that is neither, or nowhere."""

import atexit
import html
import os
import sys
from typing import Any, Protocol, TextIO

from truestep.run.progress.reading import ProgressReading


class ProgressDisplay(Protocol):
    """A place that shows a reading."""

    every_seconds: float
    epoch_seconds: float  # at most one showing in this time is for an epoch's end

    def show(self, reading: ProgressReading) -> None:
        """Show where the run is."""

    def line(self, text: str) -> None:
        """Print a message of its own."""

    def close(self) -> None:
        """Give the place back."""


class SilentProgress:
    """Shows nothing."""

    every_seconds = float("inf")
    epoch_seconds = float("inf")

    def show(self, reading: ProgressReading) -> None:
        """Do nothing."""

    def line(self, text: str) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class PlainProgress:
    """A line of text now and then, without control codes: for files, pipes and batch systems."""

    every_seconds = 10.0
    epoch_seconds = 1.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, reading: ProgressReading) -> None:
        """Write one line."""
        self.line(reading.plain())

    def line(self, text: str) -> None:
        """Write one line, at once in the file."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream as it is."""


class TerminalProgress:
    """Two lines at the bottom of a terminal, over which everything else that is printed scrolls."""

    every_seconds = 0.2
    epoch_seconds = 0.2

    def __init__(self, stream: TextIO) -> None:
        from truestep.core.rich_imports import Console, Live

        self._live = Live(
            console=Console(file=stream, force_terminal=True, force_jupyter=False, highlight=False),
            auto_refresh=False,  # no thread: it is drawn when a step says so
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )

    def show(self, reading: ProgressReading) -> None:
        """Draw the two lines anew."""
        from truestep.run.progress.bar import ProgressBar

        if not self._live.is_started:
            self._live.start()
            atexit.register(self.close)  # an exception must not leave the cursor hidden
        self._live.update(ProgressBar(reading), refresh=True)

    def line(self, text: str) -> None:
        """Print above the two lines."""
        self._live.console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Show the cursor again and let prints go their own way."""
        atexit.unregister(self.close)
        self._live.stop()


class NotebookProgress:
    """One output of the cell that is written over; needs no widgets."""

    every_seconds = 0.5
    epoch_seconds = 0.5

    def __init__(self) -> None:
        self._shown: Any = None

    def show(self, reading: ProgressReading) -> None:
        """Write over the cell's output."""
        from IPython.display import display

        content = {"text/plain": reading.plain(), "text/html": progress_html(reading)}
        if self._shown is None:
            self._shown = display(content, raw=True, display_id=True)
        else:
            self._shown.update(content, raw=True)

    def line(self, text: str) -> None:
        """Print below."""
        sys.stderr.write(text + "\n")

    def close(self) -> None:
        """Leave the last state in the cell."""


def progress_html(reading: ProgressReading) -> str:
    """Return the reading as a progress element with a line of text."""
    colours = {"bad": "color:#d02030;font-weight:bold", "warning": "color:#b06000"}
    facts = "  ".join(
        f'<span style="{colours[tone]}">{html.escape(text)}</span>' if tone in colours else html.escape(text)
        for text, tone in reading.facts()
    )
    done = "" if reading.fraction is None else f' value="{reading.fraction:.4f}"'
    return (
        f'<div style="font-variant-numeric:tabular-nums;white-space:pre-wrap">{reading.epoch_text()}  '
        f'<progress{done} max="1" aria-label="progress"></progress>  {reading.time_text()}\n{facts}</div>'
    )


def progress_display_for(stream: TextIO | None) -> ProgressDisplay:
    """Return the place to show progress that suits the stream."""
    from truestep.run.notebook import notebook_shell  # here, so that the name of a run loads few modules

    if stream is None:
        return SilentProgress()
    # a kernel with cells, such as Jupyter's, and not IPython on a terminal
    if stream is sys.stderr and getattr(notebook_shell(), "kernel", None) is not None:
        return NotebookProgress()
    if stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        return TerminalProgress(stream)
    return PlainProgress(stream)
