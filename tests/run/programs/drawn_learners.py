# SPDX-License-Identifier: Apache-2.0
"""`python drawn_learners.py FOLDER COUNT`: train the drawn plans of learners on several ranks, and keep how each ended."""

import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.drawn_learners import for_ranks, train

folder, count = Path(sys.argv[1]), int(sys.argv[2])
for number in range(count):
    plan = for_ranks(number)
    ends = train(folder / f"ranks {number}", plan, dropout=0.0, dtype=torch.float64)
    if os.environ["RANK"] == "0":
        torch.save(ends, folder / f"{number}.pt")
