# SPDX-License-Identifier: Apache-2.0
"""WeightsOnlyRefused."""

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Cause, Explainer, Match


class WeightsOnlyRefused(Explainer):
    """torch.load refuses a file that holds more than tensors.

    Means: since torch 2.6 it loads tensors and plain containers alone; other classes would run code of the file's author.

    Raises:
        import io

        file = io.BytesIO()
        torch.save({"accuracy": np.float64(0.9)}, file)
        file.seek(0)
        torch.load(file)

    Works:
        import io

        file = io.BytesIO()
        torch.save({"accuracy": float(np.float64(0.9))}, file)
        file.seek(0)
        torch.load(file)

    Fix: save state dicts and plain numbers (float(x), vars(args), str(path)). For a file you trust, allow its classes with
    torch.serialization.safe_globals([...]); weights_only=False runs whatever it holds.
    """

    messages = (
        r"(?s)Weights only load failed.*?Unsupported (?:global: GLOBAL|class) (?P<what>[\w.]+)",
        r"(?s)Weights only load failed.*?Can only \w+ ",
        r"WeightsUnpickler error: Unsupported (?:global: GLOBAL|class) (?P<what>[\w.]+)",
        r"Weights only load failed",
    )
    checks = ("SAVE001", "SAVE004")

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        what = match.groupdict().get("what")
        if not what:
            return None
        root = what.partition(".")[0]
        if root in ("numpy", "np"):
            return Cause(
                f"the file holds a NumPy value ({what}).",
                "save float(x), or torch.from_numpy(array), in its place.",
            )
        if root in ("argparse", "omegaconf", "pathlib"):
            return Cause(
                f"the file holds options ({what}).",
                "save vars(args) or a plain dict, and str(path) for paths.",
            )
        return Cause(
            f"the file holds an object of {what}: a whole model or a class was saved, not a state dict.",
            f"for a file you trust: with torch.serialization.safe_globals([{what.rpartition('.')[2]}]): torch.load(...); then save "
            "model.state_dict() instead.",
        )
