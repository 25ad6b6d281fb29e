# SPDX-License-Identifier: Apache-2.0
import re

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Explainer, Match


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

    Cases:
        `Weights only` and `Unsupported operand`: the first bytes are those of no checkpoint.
        `invalid load key, '<'`: the file begins with <: it is a web page, an error page of the download.
            Fix: download it anew; look into it.
        `invalid load key, 'v'`: the file begins with v: it is a Git LFS pointer, not the weights.
            Fix: run git lfs install && git lfs pull.
        `invalid load key, '\\x1f'`: the file is compressed with gzip. Fix: decompress it first (gunzip).
        `input`: the file is empty or ends too early.
    """

    messages = (
        r"(?s)Weights only load failed.*?(?:invalid load key, '[^']*'|Unsupported operand \d+)",
        r"PytorchStreamReader failed (?:reading zip archive|reading file|locating file)",
        r"failed finding central directory",
        r"invalid load key, '[^']*'",
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
            return re.search(".*", "no input") if loading else None
        return super().match(crash)
