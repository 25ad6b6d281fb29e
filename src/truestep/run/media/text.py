# SPDX-License-Identifier: Apache-2.0
"""Text, as a file of UTF-8."""

from truestep.core.errors import OptionError
from truestep.run.media.kind import EncodedMedia


class Text(EncodedMedia):
    """Text for `run.log(samples=ts.Text(string))`; the report shows it as it is, with its line ends and as no HTML.

    Raises OptionError for what is no string, and for more than 4 MiB.
    """

    kind = "text"
    suffix = ".txt"

    def __init__(self, string: str) -> None:
        if not isinstance(string, str):
            raise OptionError(
                f"ts.Text was given {type(string).__name__}; give it a string: ts.Text(str(value))."
            )
        super().__init__(string.encode("utf-8", "backslashreplace"))
