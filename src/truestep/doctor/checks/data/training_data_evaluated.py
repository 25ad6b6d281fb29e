# SPDX-License-Identifier: Apache-2.0
"""The training set under another name."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import argument, literal

_HELD_OUT = re.compile(r"(^|_)(test|val|valid|validation|heldout)(_|$|set|loader|data)", re.IGNORECASE)
_TRAIN = re.compile(r"(^|_)(train|training)(_|$|set|data)", re.IGNORECASE)


class TrainingDataEvaluated(SourceCheck):
    """What is named as test data is the training set.

    Why: the model is measured on what it has learned by heart.

    Bad:
        train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
        test_loader = DataLoader(train_set, batch_size=32)  # here

    Good:
        train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
        test_loader = DataLoader(test_set, batch_size=32)

    Fix: give the loader the data that were held out.
    """

    code = "DATA020"
    words = ("DataLoader", "datasets")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an assignment whose name says the one, and whose data the other."""
        for statement in module.all(ast.Assign):
            name = (dotted(statement.targets[0]) or "").rsplit(".", 1)[-1]
            call = statement.value
            if not _HELD_OUT.search(name) or _TRAIN.search(name) or not isinstance(call, ast.Call):
                continue
            if module.qualify(call.func) == "torch.utils.data.DataLoader":
                data = argument(call, 0, "dataset")
                given = (dotted(data) or "").rsplit(".", 1)[-1] if data is not None else ""
                sampled = any(argument(call, i, word) for i, word in ((3, "sampler"), (4, "batch_sampler")))
                if _TRAIN.search(given) and not _HELD_OUT.search(given) and not sampled:
                    yield At(call, f"{name!r} reads {given!r}: it measures on the training data.")
            elif (module.qualify(call.func) or "").startswith("torchvision.datasets."):
                if literal(module, argument(call, 1, "train")) is True and not _divided(module):
                    yield At(call, f"{name!r} is made with train=True: it is the training data.")


def _divided(module: SourceModule) -> bool:
    """Held-out data may be a part of the training set, e.g. by Subset(val_set, indices) or a sampler."""
    uses = {"random_split", "Subset", "sampler", "SubsetRandomSampler"}
    return bool(uses & module.identifiers)
