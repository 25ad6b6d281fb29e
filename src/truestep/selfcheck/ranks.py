# SPDX-License-Identifier: Apache-2.0
"""What each of several processes runs: `ranks.py FOLDER DEVICE`; the first one writes its weights to FOLDER/ranks.pt."""

import os
import sys
from pathlib import Path

import torch

from truestep.selfcheck.training import CheckedDevice, train

if __name__ == "__main__":
    place = CheckedDevice(torch.device(sys.argv[2]), Path(sys.argv[1]))
    weights = train(place, "together", dropout=0)
    if os.environ.get("RANK") == "0":
        torch.save(weights, place.folder / "ranks.pt")
