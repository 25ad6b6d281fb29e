# SPDX-License-Identifier: Apache-2.0
"""A transform that is set for one part of a data set and changes all."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted

_TRANSFORMS = (
    "transform",
    "transforms",
    "target_transform",
    "augment",
    "augmentation",
    "train",
    "training",
    "is_train",
)


class TransformOfWholeSet(SourceCheck):
    """The transform of one part of random_split() is set through `.dataset`, which is the same object for all parts.

    Why: the last setting holds for training and validation alike: the training has lost its augmentation, or the validation
    has got it.

    Bad:
        class Images(Dataset):
            transform = None

        train_set, valid_set = torch.utils.data.random_split(Images(), [80, 20])
        valid_set.dataset.transform = nn.Identity()  # here

    Good:
        class Images(Dataset):
            def __init__(self, transform):
                self.transform = transform

        parts = [range(80), range(80, 100)]
        train_set = torch.utils.data.Subset(Images(nn.Dropout(0.1)), parts[0])
        valid_set = torch.utils.data.Subset(Images(nn.Identity()), parts[1])

    Fix: two data sets with a transform each, and torch.utils.data.Subset with the indices of the split.

    Evidence: 186 repositories, beds R, S: 14 true, 2 debatable, 0 false.
    """

    code = "DATA038"
    words = ("random_split",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `part.dataset.transform = ...` for a name that random_split gave, unless a part gets a set of its own."""
        for node in module.all(ast.Assign):
            target = node.targets[0]
            if not isinstance(target, ast.Attribute) or target.attr not in _TRANSFORMS:
                continue
            whole = target.value
            if not isinstance(whole, ast.Attribute) or whole.attr != "dataset":
                continue
            if (
                _is_part(module, whole.value)
                and not _has_own_sets(module, node)
                and not _is_set_again(module, node)
            ):
                yield At(
                    node, f"{ast.unparse(whole)} is the whole data set: this is set for its other parts, too."
                )


def _is_part(module: SourceModule, node: ast.expr) -> bool:
    """Tell a name, or an attribute, that is unpacked from `random_split(...)`."""
    unpacked = module.resolver.unpacked(node) if isinstance(node, ast.Name) else None
    values = [value for value, _ in unpacked or []]
    if isinstance(node, ast.Attribute) and (owner := module.classes.of(node.value)) is not None:
        bindings = module.resolver.attribute_bindings(owner, node.attr)
        values = [each.value for each in bindings if each.value is not None and each.how == "unpack"]
    calls = [module.qualify(each.func) if isinstance(each, ast.Call) else None for each in values]
    return bool(calls) and all(each == "torch.utils.data.random_split" for each in calls)


def _is_set_again(module: SourceModule, node: ast.Assign) -> bool:
    """Tell whether the next line sets the same of another part: that line is the one that holds for all of them."""
    above = module.parents[node]
    blocks = [getattr(above, name, None) for name in ("body", "orelse", "finalbody")]
    block = next((each for each in blocks if isinstance(each, list) and node in each), [node])
    target, follows = node.targets[0], block[block.index(node) + 1 : block.index(node) + 2]
    assert isinstance(target, ast.Attribute)
    return any(
        isinstance(each, ast.Assign)
        and isinstance(other := each.targets[0], ast.Attribute)
        and other.attr == target.attr
        and isinstance(other.value, ast.Attribute)
        and other.value.attr == "dataset"
        and _is_of_same_split(module, target.value, other.value)
        for each in follows
    )


def _is_of_same_split(module: SourceModule, one: ast.expr, other: ast.expr) -> bool:
    """Tell parts that one line draws: the same call is behind both."""
    calls = []
    for each in (one, other):
        part = each.value if isinstance(each, ast.Attribute) else each
        unpacked = module.resolver.unpacked(part) if isinstance(part, ast.Name) else None
        calls.append([value for value, _ in unpacked or []])
    return bool(calls[0]) and calls[0] == calls[1]


def _has_own_sets(module: SourceModule, node: ast.AST) -> bool:
    """Tell `part.dataset = copy.copy(part.dataset)`."""
    return any(
        isinstance(each, ast.Attribute) and each.attr == "dataset" and dotted(each) != "self.dataset"
        for store in module.all(ast.Assign)
        for each in store.targets
        if module.scope(store) is module.scope(node)
    )
