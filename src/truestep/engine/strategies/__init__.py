# SPDX-License-Identifier: Apache-2.0
"""How processes share a training, one file each; this table is the closed set of them."""

from truestep.engine.strategies.base import AttemptTakenBackError, BatchPlacing, RankStrategy, UpdateHooks
from truestep.engine.strategies.ddp import Ddp
from truestep.engine.strategies.fsdp import Fsdp
from truestep.engine.strategies.single import SingleProcess

STRATEGIES: dict[str, type[RankStrategy]] = {"single": SingleProcess, "ddp": Ddp, "fsdp": Fsdp}

__all__ = [
    "STRATEGIES",
    "AttemptTakenBackError",
    "BatchPlacing",
    "Ddp",
    "Fsdp",
    "RankStrategy",
    "SingleProcess",
    "UpdateHooks",
]
