# SPDX-License-Identifier: Apache-2.0
"""FileDamaged."""

import re

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Cause, Explainer, Match


class FileDamaged(Explainer):
    """A checkpoint's file is cut short, empty, or no checkpoint at all.

    Means: the file's end or its marks are missing: saving or the download was interrupted, or it is a web page or a Git
    LFS pointer of a few lines.

    Raises:
        import io

        file = io.BytesIO()
        torch.save(torch.zeros(1000), file)
        torch.load(io.BytesIO(file.getvalue()[:2000]))

    Works:
        import io

        file = io.BytesIO()
        torch.save(torch.zeros(1000), file)
        torch.load(io.BytesIO(file.getvalue()))

    Fix: look at the file's size and first bytes (ls -l, head -c 100), and fetch or copy it again (git lfs pull). Save to a
    temporary name and rename, as ts.CheckpointStore does, so that a kill leaves the old file.
    """

    messages = (
        r"(?s)Weights only load failed.*?(?:invalid load key, '(?P<key>[^']*)'|Unsupported operand \d+)",
        r"PytorchStreamReader failed (?:reading zip archive|reading file|locating file)",
        r"failed finding central directory",
        r"invalid load key, '(?P<key>[^']*)'",
        r"Ran out of input",
        r"unexpected EOF, expected \d+ more bytes",
        r"Error while deserializing(?: header)?:? ?\w+",
        r"pickle data was truncated",
        r"could not find MARK",
        r"unpickling stack underflow|Unsupported operand \d+",
        r"version_ <= kMaxSupportedFileFormatVersion",
        r"storage has wrong (?:byte )?size: expected -?\d+ got \d+",
    )
    not_in_a_log = "the file's size and first bytes"

    @classmethod
    def match(cls, crash: Crash) -> Match | None:
        """Also recognise the EOFError of an empty file, whose message is empty."""
        if not crash.message and any(name.endswith("EOFError") for name in crash.type_names):
            loading = any("serialization" in frame.path or "load" in frame.text for frame in crash.frames)
            return re.search("$", "") if loading else None
        return super().match(crash)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        key = match.groupdict().get("key")
        if "Weights only" in crash.message and "Unsupported operand" in match[0]:
            return Cause("the first bytes are those of no checkpoint.")
        known = {
            "<": (
                "the file begins with <: it is a web page, an error page of the download.",
                "download it anew; look into it.",
            ),
            "v": (
                "the file begins with v: it is a Git LFS pointer, not the weights.",
                "run git lfs install && git lfs pull.",
            ),
            "\\x1f": ("the file is compressed with gzip.", "decompress it first (gunzip)."),
        }
        if key in known:
            return Cause(*known[key])
        return Cause("the file is empty or ends too early.") if not match[0] or "input" in match[0] else None
