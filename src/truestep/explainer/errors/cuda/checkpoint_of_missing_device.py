# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class CheckpointOfMissingDevice(Explainer):
    """A file saved from a GPU is loaded where there is none.

    Means: torch.load puts tensors back on the device that they were saved from, unless map_location says another.

    Recorded:
        RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are
        running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to
        the CPU.

    Fix: write torch.load(path, map_location="cpu", weights_only=True), and move the model afterwards. If this machine has a
    GPU, torch does not see it: `truestep env` says why.
    """

    messages = (
        r"Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
        r"Attempting to deserialize object on (?:a|an) \w+ device but",
        r"don't know how to restore data location of torch\.\w+ \(tagged with \w+\)",
    )
