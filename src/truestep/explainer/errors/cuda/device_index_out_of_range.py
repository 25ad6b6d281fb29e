# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.values import torch_if_imported


class DeviceIndexOutOfRange(Explainer):
    """A card is named by an index that this process does not have.

    Means: inside a process cards count from 0 over those that CUDA_VISIBLE_DEVICES shows, whatever their number outside.

    Recorded:
        RuntimeError: CUDA error: invalid device ordinal

    Fix: with CUDA_VISIBLE_DEVICES=3 the card is cuda:0. Under torchrun use int(os.environ["LOCAL_RANK"]), and start no
    more processes than cards (--nproc-per-node). A checkpoint of another card: torch.load(..., map_location="cpu").

    Cases:
        otherwise: the file was saved from cuda:{device}; this process sees {count} card(s).
            Fix: write torch.load(path, map_location="cpu"), then move the model.
        otherwise: this process sees {num} card(s), counted from cuda:0.
    """

    messages = (
        r"CUDA error: invalid device ordinal",
        r"cuda runtime error \(101\)",
        r"[Ii]nvalid device id",
        r"device >= 0 && device < num_gpus",
        r"Attempting to deserialize object on CUDA device (?P<device>\d+) but torch\.cuda\.device_count\(\) is (?P<count>\d+)",
        r"duplicate GPU detected",
    )
    checks = ("DEV001",)
    not_in_a_log = "how many cards the process saw"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        torch = torch_if_imported()
        sees = crash.is_live and torch is not None and torch.cuda.is_available()
        return {"num": str(torch.cuda.device_count())} if sees else {}
