# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

from truestep.core.text_formatting import plural
from truestep.explainer.explainer import Crash, Explainer, Match

_MOST_NAMES = 4


class FolderIsNoFile(Explainer):
    """A folder is opened as if it were a file.

    Means: the path names a folder, which holds the file or several.

    Raises:
        os.makedirs("model")
        torch.load("model")

    Works:
        os.makedirs("model")
        torch.save({}, "model/weights.pt")
        torch.load("model/weights.pt")

    Fix: name the file in it (Path(folder) / "weights.pt"). A folder that a library has saved is read by that library:
    Model.from_pretrained(folder), ts.load_weights(module, folder) of a run of Truestep.

    Cases:
        `run=`: "{folder}" is a run of Truestep, whose checkpoints are no files of torch's.
            Fix: write ts.load_weights(module, "{folder}"); a run goes on by itself: ts.Run("{folder}").
        otherwise: it holds {inside}.
    """

    types = ("IsADirectoryError",)
    messages = (r"\[Errno 21\] Is a directory: ?(?P<path>.*)",)
    not_in_a_log = "what is in it"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        path = getattr(crash.error, "filename", None)
        if not crash.is_live or not isinstance(path, str | os.PathLike):
            return {}
        names = sorted(each.name for each in Path(path).iterdir())
        if "config.json" in names and "checkpoints" in names:
            return {"run": "yes", "folder": Path(path).as_posix()}
        shown = ", ".join(names[:_MOST_NAMES])
        return {"inside": f"{plural(len(names), 'name')}: {shown}" if names else "nothing"}
