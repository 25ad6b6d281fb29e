# SPDX-License-Identifier: Apache-2.0
"""torch seeded, NumPy not."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, after, name_of, text_of


class NumpyUnseeded(SourceCheck):
    """A seeding function seeds random and torch, but not the NumPy that the file draws from.

    Why: what NumPy draws differs from run to run.

    Bad:
        def fix_all(seed):
            random.seed(seed)
            torch.manual_seed(seed)  # here

        noise = np.random.rand(3)

    Good:
        def fix_all(seed):
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)

        noise = np.random.rand(3)

    Fix: seed it too, or draw from a generator with a seed of its own.
    """

    code = "SEED004"
    words = ("manual_seed",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a torch seed in a file that draws from NumPy's global stream and never seeds it."""
        draws = [
            name
            for name, _ in module.calls_matching("numpy.random.")
            if name.split(".")[-1] not in ("default_rng", "RandomState", "Generator", "seed", "SeedSequence")
        ]
        seeds = module.calls("torch.manual_seed")
        if draws and seeds and not any(each.calls("numpy.random.seed") for each in module.linked):
            yield At(seeds[0], f"torch is seeded; {draws[0]} is not.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Seed NumPy too."""
        seed = text_of(module, node.args[0])
        return [after(module, node, f"{name_of(module, 'numpy')}.random.seed({seed})")]
