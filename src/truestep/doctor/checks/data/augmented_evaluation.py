# SPDX-License-Identifier: Apache-2.0
"""Random augmentation of the data that measure."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import argument, literal

_RANDOM = re.compile(
    r"^torchvision\.transforms\.(v2\.)?(Random\w+|ColorJitter|AutoAugment|RandAugment|TrivialAugmentWide|AugMix)$"
)
_HELD_OUT = ("test", "val", "valid", "validation")


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
