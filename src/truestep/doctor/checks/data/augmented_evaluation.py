# SPDX-License-Identifier: Apache-2.0
"""Random augmentation of the data that measure."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.values import argument, literal

_RANDOM = re.compile(
    r"^torchvision\.transforms\.(v2\.)?(Random\w+|ColorJitter|AutoAugment|RandAugment|TrivialAugmentWide|AugMix)$"
)
_HELD_OUT = ("test", "val", "valid", "validation")
_PARTS_HELD_OUT = {*_HELD_OUT, "dev", "eval"}


class AugmentedEvaluation(SourceCheck):
    """The test set is given random augmentations.

    Why: the accuracy is measured on other images each time, and mostly too low.

    Bad:
        from torchvision import datasets, transforms
        augment = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
        train_set = datasets.CIFAR10("data", train=True, transform=augment)
        test_set = datasets.CIFAR10("data", train=False, transform=augment)  # here

    Good:
        from torchvision import datasets, transforms
        augment = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
        train_set = datasets.CIFAR10("data", train=True, transform=augment)
        test_set = datasets.CIFAR10("data", train=False, transform=transforms.ToTensor())

    Fix: one transform for training, and one without chance for evaluation.
    """

    code = "DATA019"
    words = ("transform",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a torchvision data set of held-out data whose transform has a random part."""
        for name, call in module.calls_matching("torchvision.datasets."):
            transform = argument(call, None, "transform")
            held_out = literal(module, argument(call, None, "train")) is False or (
                literal(module, argument(call, None, "split")) in _HELD_OUT
            )
            if held_out and transform is not None and (random := self._random_part(module, transform)):
                yield At(call, f"{name.rsplit('.', 1)[-1]} for evaluation is augmented by {random}.", RISK)

        for call in module.calls("torch.utils.data.random_split"):
            data = argument(call, 0, "dataset")
            made = module.definitions(data) if isinstance(data, ast.Name | ast.Attribute) else [data]
            if len(made) == 1 and isinstance(made[0], ast.Call) and _splits_off(module, call):
                transform = argument(made[0], None, "transform")
                if transform is not None and (random := self._random_part(module, transform)):
                    yield At(call, f"Both parts are augmented by {random}, the one for evaluation too.", RISK)

    def _random_part(self, module: SourceModule, transform: ast.expr) -> str | None:
        sources = [transform, *module.definitions(transform)]
        if len(sources) > 2 or None in sources:
            return None
        for source in sources:
            for call in walk(source) if source is not None else ():
                name = module.qualify(call.func) or "" if isinstance(call, ast.Call) else ""
                if _RANDOM.match(name):
                    return name.rsplit(".", 1)[-1]
        return None


def _splits_off(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether one part is named for evaluation, and no line gives that a transform of its own."""
    statement = module.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    parts = target.elts if isinstance(target, ast.Tuple) else []
    words = [set(re.split(r"[^a-z]+", (dotted(each) or "").lower())) for each in parts]
    mended = any(
        isinstance(each, ast.Attribute) and each.attr == "transform" and isinstance(each.ctx, ast.Store)
        for each in module.all(ast.Attribute)
    )
    return any(each & _PARTS_HELD_OUT for each in words) and not mended
