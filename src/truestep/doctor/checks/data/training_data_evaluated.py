# SPDX-License-Identifier: Apache-2.0
"""The training set under another name."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, is_none, last_part, walk
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

    Evidence: 186 repositories: said 2 times, not judged; beds C, E, F, I, K, L, M, R: 9 true, 3 debatable, 1
    false.
    """

    code = "DATA020"
    words = ("DataLoader", "datasets", "loader")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an assignment whose name says the one, and whose data the other."""
        for statement in module.all(ast.Assign):
            name = last_part(statement.targets[0])
            call = statement.value
            if not _HELD_OUT.search(name) or _TRAIN.search(name):
                continue
            if isinstance(call, (ast.Name, ast.Attribute)):
                yield from _in_place_of(module, statement, name)
            if not isinstance(call, ast.Call):
                continue
            if module.qualify(call.func) == "torch.utils.data.DataLoader":
                data = argument(call, 0, "dataset")
                given = last_part(data) if data is not None else ""
                sampled = any(argument(call, i, word) for i, word in ((3, "sampler"), (4, "batch_sampler")))
                if _TRAIN.search(given) and not _HELD_OUT.search(given) and not sampled:
                    yield At(call, f"{name!r} reads {given!r}: it measures on the training data.")
            elif (module.qualify(call.func) or "").startswith("torchvision.datasets."):
                if literal(module, argument(call, 1, "train")) is True and not _divided(module):
                    yield At(call, f"{name!r} is made with train=True: it is the training data.")


def _in_place_of(module: SourceModule, statement: ast.Assign, name: str) -> Iterator[At]:
    """Report the training data where a test has just made sure that there are held-out ones, which stay unused."""
    given, test = last_part(statement.value), module.parents[statement]
    if not isinstance(test, ast.If) or not _TRAIN.search(given) or _HELD_OUT.search(given):
        return
    sure = _made_sure_of(test, statement in test.body)
    if sure is not None and _HELD_OUT.search(sure.rsplit(".", 1)[-1]):
        arm = test.body if statement in test.body else test.orelse
        if not any(dotted(each) == sure for part in arm for each in walk(part)):
            yield At(statement, f"{sure!r} is there, and {name!r} is given {given!r}.", RISK)


def _made_sure_of(test: ast.If, in_body: bool) -> str | None:
    """Return x for the body of `if x is not None:`, and for the else of `if x is None:`."""
    asked = test.test
    if not isinstance(asked, ast.Compare) or len(asked.ops) != 1 or not is_none(asked.comparators[0]):
        return None
    there = isinstance(asked.ops[0], ast.IsNot)
    return dotted(asked.left) if there is in_body else None


def _divided(module: SourceModule) -> bool:
    """Held-out data may be a part of the training set, e.g. by Subset(val_set, indices) or a sampler."""
    uses = {"random_split", "Subset", "sampler", "SubsetRandomSampler"}
    return bool(uses & module.program.identifiers)
