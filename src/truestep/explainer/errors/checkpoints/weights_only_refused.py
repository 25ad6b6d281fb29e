# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


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

    Cases:
        `what=numpy` or `what=np.`: the file holds a NumPy value ({what}).
            Fix: save float(x), or torch.from_numpy(array), in its place.
        `what=argparse` or `what=omegaconf` or `what=pathlib`: the file holds options ({what}).
            Fix: save vars(args) or a plain dict, and str(path) for paths.
        otherwise: the file holds an object of {what}: a whole model or a class was saved, not a state dict.
            Fix: for a file you trust: with torch.serialization.safe_globals([{name}]): torch.load(...); then save
            model.state_dict() instead.
    """

    messages = (
        r"(?s)Weights only load failed.*?Unsupported (?:global: GLOBAL|class) (?P<what>(?:\w+\.)*(?P<name>\w*))",
        r"(?s)Weights only load failed.*?Can only \w+ ",
        r"WeightsUnpickler error: Unsupported (?:global: GLOBAL|class) (?P<what>(?:\w+\.)*(?P<name>\w*))",
        r"Weights only load failed",
    )
    checks = ("SAVE001",)
