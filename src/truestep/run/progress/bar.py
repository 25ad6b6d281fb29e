# SPDX-License-Identifier: Apache-2.0
"""The two lines on a terminal, as wide as it is."""

from truestep.core.rich_imports import Console, ConsoleOptions, RenderResult, Text
from truestep.run.progress.reading import ProgressReading

STYLES = {"plain": "", "quiet": "dim", "warning": "yellow", "bad": "bold red"}


class ProgressBar:
    """Draws a reading; what does not fit into the width is left out, least watched first."""

    def __init__(self, reading: ProgressReading) -> None:
        self.reading = reading

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(10, options.max_width - 1)  # a full last column makes some terminals wrap
        yield self._bar_line(width, ascii_only=options.ascii_only)
        yield self._facts_line(width)

    def _bar_line(self, width: int, *, ascii_only: bool) -> Text:
        text = Text(self.reading.epoch_text(), style="bold", no_wrap=True, overflow="crop")
        fraction, tail = self.reading.fraction, "  " + self.reading.time_text()
        if fraction is not None:
            num_cells = width - len(text) - len(tail) - len("   100%")
            if num_cells >= 5:
                text.append(" ").append_text(_bar_cells(fraction, num_cells, "=-" if ascii_only else "━─"))
                tail = f"  {fraction:4.0%}{tail}"
        return text.append(tail, style="not bold") if len(text) + len(tail) <= width else text

    def _facts_line(self, width: int) -> Text:
        text = Text(no_wrap=True, overflow="crop")
        for fact, tone in self.reading.facts():
            gap = "  " if text else ""
            if len(text) + len(gap) + len(fact) <= width:
                text.append(gap).append(fact, style=STYLES[tone])
        return text


def _bar_cells(fraction: float, num_cells: int, glyphs: str) -> Text:
    done = int(fraction * num_cells)
    colour = "green" if fraction >= 1 else "cyan"
    full, empty = glyphs[0] * done, glyphs[1] * (num_cells - done)
    return Text.assemble((full, f"not bold {colour}"), (empty, "not bold dim"))
