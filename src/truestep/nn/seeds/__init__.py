# SPDX-License-Identifier: Apache-2.0
"""Start every random stream at a seed, choose deterministic algorithms, and say what may still vary."""

from truestep.nn.seeds.repeatability import make_deterministic
from truestep.nn.seeds.seeded import Seeded, check_seed, seed_everything

__all__ = ["Seeded", "check_seed", "make_deterministic", "seed_everything"]
