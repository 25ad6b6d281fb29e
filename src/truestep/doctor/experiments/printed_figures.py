# SPDX-License-Identifier: Apache-2.0
"""Numbers in what a script prints, with the words before each, and how two outputs differ in them."""

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"(?<![\w.])-?\d*(?:\.\d+(?:[eE][-+]?\d+)?|\d[eE][-+]?\d+)")
_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\r")
_PROGRESS = re.compile(r"%\||\bit/s\b|\bs/it\b")
_WORDS = 30
# what is no difference: a share of the figure, and the last digit that is printed
_RELATIVE, _DIGITS = 2e-3, 1.01


@dataclass(frozen=True)
class PrintedFigure:
    """A number that was printed."""

    value: float
    text: str
    before: str  # on its line

    @property
    def rounding(self) -> float:
        """How far it may be from what was printed."""
        mantissa, _, exponent = self.text.lower().partition("e")
        decimals = len(mantissa.partition(".")[2])
        return float(10.0 ** (int(exponent or 0) - decimals))

    @property
    def num_digits(self) -> int:
        """How many digits say something."""
        return len(self.text.lower().partition("e")[0].replace(".", "").lstrip("-0"))

    def is_rounding_of(self, value: float) -> bool:
        """Tell whether it is a value, as far as it is printed."""
        return abs(self.value - value) <= 1e-6 * abs(value) + 0.51 * self.rounding

    def differs(self, other: "PrintedFigure") -> bool:
        """Tell whether it is another number than one printed in its place."""
        least = _RELATIVE * max(abs(self.value), abs(other.value))
        return abs(self.value - other.value) > least + _DIGITS * max(self.rounding, other.rounding)


def printed_figures(output: str) -> list[PrintedFigure]:
    """Return the numbers with decimals of an output, in order; those of progress bars are left out, and so are counts."""
    found = []
    for line in _CODES.sub("\n", output).splitlines():
        if _PROGRESS.search(line):
            continue
        for number in _NUMBER.finditer(line):
            before = line[max(0, number.start() - _WORDS) : number.start()].strip()
            found.append(PrintedFigure(float(number[0]), number[0], before))
    return found
