# SPDX-License-Identifier: Apache-2.0
"""An input and its target that are augmented by two draws."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, names_in, walk

_MOVES = re.compile(r"Random(\w*Crop|\w*Flip|Rotation|Affine|Perspective)|\bRandAugment|ElasticTransform")
_AUGMENTS = re.compile(r"(^|_)(aug|augs|augment|augmentation|augmentations)(_|$)")


class PairAugmentedApart(SourceCheck):
    """`__getitem__` gives the same random transform an image, and then the image that belongs to it.

    Why: each call draws anew: the input is flipped and the target is not, so the pixels no longer belong together.

    Bad:
        class Pairs(Dataset):
            def __init__(self, images, masks, augment):
                self.images, self.masks, self.augment = images, masks, augment

            def __getitem__(self, index):
                image, mask = self.images[index], self.masks[index]
                image = self.augment(image)
                mask = self.augment(mask)  # here
                return image, mask

    Good:
        class Pairs(Dataset):
            def __init__(self, images, masks, augment):
                self.images, self.masks, self.augment = images, masks, augment

            def __getitem__(self, index):
                image, mask = self.images[index], self.masks[index]
                image, mask = self.augment(image, mask)
                return image, mask

    Fix: one call for both (torchvision.transforms.v2 takes images and masks together), or the same seed before each.
    """

    code = "DATA043"
    words = ("__getitem__",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report two calls of one random transform on two things that one index picked."""
        for function in module.functions:
            if function.name != "__getitem__" or len(function.args.args) < 2 or _draws_alike(function):
                continue
            index = function.args.args[1].arg
            calls: dict[str, ast.Call] = {}
            for call in module.directly_in(function, ast.Call):
                text = ast.unparse(call.func)
                if (
                    not text.startswith("self.")
                    or len(call.args) != 1
                    or call.keywords
                    or not _is_random(module, call)
                ):
                    continue
                if not _is_of_index(module, call.args[0], index):
                    continue
                first = calls.setdefault(text, call)
                if first is not call and _are_two(module, first, call):
                    yield At(
                        call,
                        f"{text} draws anew for each call: what belongs together is augmented differently.",
                        RISK,
                    )


def _draws_alike(function: Function) -> bool:
    """Tell a function that sets a seed, or has something replayed."""
    return any(
        (isinstance(each, ast.Attribute) and re.search(r"seed|replay|deterministic|set_state", each.attr))
        or (isinstance(each, ast.Name) and re.search(r"seed|state", each.id))
        for each in walk(function)
    )


def _is_random(module: SourceModule, call: ast.Call) -> bool:
    """Tell a transform that moves pixels by a draw, in sight, or that is called an augmentation."""
    made = [each for each in module.definitions(call.func) if each is not None]
    if any(_MOVES.search(ast.unparse(each)) for each in made if isinstance(each, ast.Call)):
        return True
    return isinstance(call.func, ast.Attribute) and bool(_AUGMENTS.search(call.func.attr))


def _is_of_index(module: SourceModule, node: ast.expr, index: str, depth: int = 0) -> bool:
    """Tell what the index itself picked, and not another that was drawn."""
    if index in names_in(node):
        return True
    if depth > 4:
        return False
    for name in (each for each in walk(node) if isinstance(each, ast.Name)):
        values = [value for value, _ in module.unpacked(name) or ()] or module.definitions(name)
        if any(
            value is not None and value is not node and _is_of_index(module, value, index, depth + 1)
            for value in values
        ):
            return True
    return False


def _are_two(module: SourceModule, first: ast.Call, second: ast.Call) -> bool:
    """Tell calls that both run, for two variables."""
    if not isinstance(first.args[0], ast.Name) or not isinstance(second.args[0], ast.Name):
        return False
    if first.args[0].id == second.args[0].id:
        return False
    here = [each for each in module.ancestors(second) if isinstance(each, ast.If)]
    return [each for each in module.ancestors(first) if isinstance(each, ast.If)] == here
