# SPDX-License-Identifier: Apache-2.0
"""Curves in a terminal: eight dots a letter, or one star where the terminal knows ASCII alone."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from truestep.core.charts.axes import ChartAxis, exact_linear_axis, value_axis
from truestep.core.rich_imports import Console, ConsoleOptions, Text

COLOURS = ("bright_blue", "dark_orange", "green3", "magenta", "cyan", "yellow")
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a braille letter, by column and row
HEIGHT = 10
MAX_COLUMNS = 100


@dataclass(frozen=True, kw_only=True)
class TerminalCurve:
    """One value for each of equally spaced steps; NaN is left out."""

    name: str
    values: Sequence[float]
    colour: int = 0


@dataclass(frozen=True, kw_only=True)
class TerminalChart:
    """Curves over the same steps, drawn as wide as the terminal."""

    curves: Sequence[TerminalCurve]
    first: float
    last: float
    unit: str = "step"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        axis = self._value_axis()
        labels = dict(
            zip((_row_of_position(axis.position(tick)) for tick in axis.ticks), axis.labels(), strict=True)
        )
        margin = max(map(len, labels.values()), default=0) + 2
        columns = max(10, min(MAX_COLUMNS, options.max_width) - margin - 1)
        letters = self._character_rows(axis, columns, ascii_only=options.ascii_only)
        edge = "|" if options.ascii_only else "│"
        for row in range(HEIGHT):
            line = Text(f"{labels.get(row, ''):>{margin - 1}}{edge}", "dim")
            for letter, owner in letters[row]:
                line.append(letter, COLOURS[owner % len(COLOURS)] if owner >= 0 else "")
            yield line
        yield self._step_axis_text(margin, columns)
        if len(self.curves) > 1:
            yield self._legend_text(margin, ascii_only=options.ascii_only)

    def _value_axis(self) -> ChartAxis:
        finite = [value for curve in self.curves for value in curve.values if math.isfinite(value)]
        if not finite:
            return ChartAxis(low=0, high=1, is_log=False, ticks=())
        return value_axis(min(0.0, *finite, 0.0), max(finite), may_be_log=False, num_ticks=4)

    def _character_rows(
        self, axis: ChartAxis, columns: int, *, ascii_only: bool
    ) -> list[list[tuple[str, int]]]:
        bits = [[0] * columns for _ in range(HEIGHT)]
        owners = [[-1] * columns for _ in range(HEIGHT)]
        for curve in self.curves:
            for x, y in _curve_dots(curve.values, axis, 2 * columns, 4 * HEIGHT):
                bits[y // 4][x // 2] |= DOTS[x % 2][y % 4]
                owners[y // 4][x // 2] = curve.colour
        return [
            [
                (_cell_character(bit, owner, ascii_only=ascii_only), owner)
                for bit, owner in zip(*both, strict=True)
            ]
            for both in zip(bits, owners, strict=True)
        ]

    def _step_axis_text(self, margin: int, columns: int) -> Text:
        axis = exact_linear_axis(self.first, self.last)
        line = [" "] * (columns + 1)
        free = 0
        for tick, label in zip(axis.ticks, axis.labels(), strict=True):
            start = min(columns - len(label), max(0, round(axis.position(tick) * columns) - len(label) // 2))
            if start >= free:
                line[start : start + len(label)] = label
                free = start + len(label) + 2
        return Text(f"{self.unit:>{margin - 1}} {''.join(line).rstrip()}", "dim")

    def _legend_text(self, margin: int, *, ascii_only: bool) -> Text:
        key = Text(" " * margin)
        for curve in self.curves:
            mark = _cell_character(0xFF, curve.colour, ascii_only=True) if ascii_only else "⣿"
            key.append(mark, COLOURS[curve.colour % len(COLOURS)]).append(f" {curve.name}   ")
        return key


def _row_of_position(position: float) -> int:
    return min(HEIGHT - 1, int((1 - position) * HEIGHT))


def _cell_character(bits: int, owner: int, *, ascii_only: bool) -> str:
    if not bits:
        return " "
    return "*o+x#@"[owner % 6] if ascii_only else chr(0x2800 + bits)


def _curve_dots(
    values: Sequence[float], axis: ChartAxis, width: int, height: int
) -> Iterator[tuple[int, int]]:
    """Yield the dots of a curve; where it jumps, the dots between too."""
    before: int | None = None
    for x in range(width):
        index = round(x * (len(values) - 1) / max(1, width - 1))
        if not math.isfinite(values[index]):
            before = None
            continue
        y = min(height - 1, int((1 - axis.position(values[index])) * height))
        low, high = (y, y) if before is None else sorted((before, y))
        yield from ((x, dot) for dot in range(low if low == y else low + 1, high + 1 if high == y else high))
        before = y
