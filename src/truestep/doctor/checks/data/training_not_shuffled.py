# SPDX-License-Identifier: Apache-2.0
"""A training loader in the order of the file."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.batches import LOADER
from truestep.doctor.source.loaders import trained_on
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, with_keyword
from truestep.doctor.source.values import argument, forwards_all, literal

TRAINING = re.compile(r"(^|_)train", re.IGNORECASE)
MEASURING = re.compile(r"(^|_)(eval|evaluation|test|val|stats?)(_|$)", re.IGNORECASE)


class TrainingNotShuffled(SourceCheck):
    """The training loader does not shuffle.

    Why: batches come in the order of the data set, often sorted by class: worse models, sometimes no
    learning at all.

    Bad:
        train_loader = DataLoader(train_set, batch_size=32)  # here

    Good:
        train_loader = DataLoader(train_set, batch_size=32, shuffle=True)

    Fix: shuffle=True, or a sampler.
    """

    code = "DATA001"
    rewrites = "choice"
    words = ("DataLoader",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loader that is trained on, or is named so, and has neither shuffle nor a sampler."""
        trained = set(trained_on(module))
        for call in [*trained, *(each for each in module.calls(LOADER) if each not in trained)]:
            if forwards_all(call) or any(
                argument(call, i, word) is not None for i, word in ((3, "sampler"), (4, "batch_sampler"))
            ):
                continue
            shuffle = argument(call, 2, "shuffle")
            data = argument(call, 0, "dataset")
            is_stream = data is not None and module.kind(data) == "iterable dataset"
            trains = call in trained or any(
                TRAINING.search(name) and not MEASURING.search(name) for name in _names(module, call)
            )
            if trains and not is_stream and (shuffle is None or literal(module, shuffle) is False):
                yield At(call, "The training loader yields the data in its own order.", RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Shuffle."""
        if len(node.args) > 2:
            raise SourceRewriteError
        return [with_keyword(module, node, "shuffle", "True")]


def _names(module: SourceModule, call: ast.Call) -> list[str]:
    """Return the names that a loader gets, itself or in a wrapper: not those of an object that takes it among others."""
    value: ast.AST = call
    above = module.parents[value]
    while isinstance(above, ast.Call) and above.args == [value] and not above.keywords:
        value, above = above, module.parents[above]
    if not isinstance(above, ast.Assign):
        return []
    return [(dotted(each) or "").rsplit(".", 1)[-1] for each in above.targets]
