# SPDX-License-Identifier: Apache-2.0
"""How processes share a training, one file each; this table is the closed set of them."""

from truestep.engine.strategies.base import Placing, Strategy, UpdateHooks
from truestep.engine.strategies.ddp import Ddp
from truestep.engine.strategies.fsdp import Fsdp
from truestep.engine.strategies.single import Single

STRATEGIES: dict[str, type[Strategy]] = {"single": Single, "ddp": Ddp, "fsdp": Fsdp}

__all__ = ["STRATEGIES", "Ddp", "Fsdp", "Placing", "Single", "Strategy", "UpdateHooks"]
