# SPDX-License-Identifier: Apache-2.0
"""Names in a narrow column: broken where a reader would break them, and not in the middle of a word."""

from typing import Any

from truestep.core.rich_imports import Text

_BREAKS_BEHIND = "_/ "


class WrappingText:
    """A text that rich draws over as few lines as it needs, broken behind `_`, `/` or a blank; `hang` blanks begin the others."""

    def __init__(self, text: Text, hang: int = 2) -> None:
        self._text, self._hang = text, hang

    def __rich_console__(self, _: Any, options: Any) -> Any:
        yield self.broken(options.max_width)

    def __rich_measure__(self, console: Any, options: Any) -> Any:
        return self._text.__rich_measure__(console, options)

    def broken(self, width: int) -> Text:
        """Return the text in lines of at most so many columns."""
        return Text("\n").join(
            self._wrap_line(line, width) for line in self._text.split("\n", allow_blank=True)
        )

    def _wrap_line(self, text: Text, width: int) -> Text:
        plain, hang = text.plain, min(self._hang, width // 2)
        cuts: list[int] = []
        start, room = 0, width
        begin = len(plain) - len(plain.lstrip())
        while len(plain) - start > room:
            places = range(max(start, begin), start + room)
            cut = max((at + 1 for at in places if plain[at] in _BREAKS_BEHIND), default=start + room)
            cuts.append(cut)
            start, room = cut, width - hang
        return Text("\n" + " " * hang).join(text.divide(cuts))
