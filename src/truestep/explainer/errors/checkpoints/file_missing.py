# SPDX-License-Identifier: Apache-2.0
import difflib
import os
from pathlib import Path

from truestep.explainer.explainer import Crash, Explainer, Match

_MOST_NAMES = 10_000


class FileMissing(Explainer):
    """A file or folder is read that is not there.

    Means: a path without a leading / counts from the folder the program was started in, not from the script's.

    Raises:
        torch.save({}, "model_last.pt")
        torch.load("model-last.pt")

    Works:
        torch.save({}, "model_last.pt")
        torch.load("model_last.pt")

    Fix: print the path's absolute form (Path(path).resolve()) and list its folder. Count paths from the script:
    Path(__file__).parent / NAME. Make folders before saving: path.parent.mkdir(parents=True, exist_ok=True).

    Cases:
        `program=`: it is a program that was to be started, and is not found on the PATH.
            Fix: install it, or add its folder to PATH.
        otherwise: its folder{counted} has no such {kind}, but {close}.
            Fix: correct the name, if that is what is meant.
        otherwise: the first part that is missing is the {kind} {part}, in {parent}/{counted}.
    """

    types = ("FileNotFoundError", "RuntimeError", "NotADirectoryError")
    messages = (
        r"\[Errno 2\] No such file or directory: ?(?P<path>.*)",
        r"\[WinError [23]\] [^:]*: ?(?P<path>.*)",
        r"Parent directory (?P<folder>.*) does not exist",
        r"Couldn't find any class folder in (?P<path>.*)",
        r"[Nn]o such file or directory: ?(?P<path>.*)",
    )
    not_in_a_log = "which files are there"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        if any(frame.path.endswith("subprocess.py") for frame in crash.frames):
            return {"program": "yes"}
        path = getattr(crash.error, "filename", None)
        return (
            _missing_path_part_facts(Path(path))
            if crash.is_live and isinstance(path, str | os.PathLike)
            else {}
        )


def _similar_file_names(path: Path) -> str:
    """Return the names most like a missing one, of those that stand in its folder."""
    with os.scandir(path.parent) as entries:
        names = [entry.name for entry, _ in zip(entries, range(_MOST_NAMES), strict=False)]
    close = difflib.get_close_matches(path.name, names, n=3, cutoff=0.7)
    return " and ".join(close)


def _missing_path_part_facts(path: Path) -> dict[str, str]:
    """Say which part of a path is missing, and what stands there instead."""
    counted = "" if path.is_absolute() else f" (counted from the working folder, {Path.cwd().name}/)"
    there = path.absolute()
    while not there.parent.is_dir():
        there = there.parent
    facts = {"counted": counted, "kind": "file" if there == path.absolute() else "folder"}
    close = _similar_file_names(there)
    return facts | ({"close": close} if close else {"part": there.name, "parent": there.parent.name})
