# SPDX-License-Identifier: Apache-2.0
"""Random augmentation of the data that measure, and a transform that is set for one part of a data set and changes all."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.arguments import argument_for, parameter_names
from truestep.doctor.source.live_variables import is_unused_data
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, is_self, last_part, walk
from truestep.doctor.source.untaken_branches import SettledValues, is_taken, tests_that_skip
from truestep.doctor.source.value_origins import argument, literal

_RANDOM = re.compile(
    r"^torchvision\.transforms\.(v2\.)?(Random\w+|ColorJitter|AutoAugment|RandAugment|TrivialAugmentWide|AugMix)$"
    r"|^albumentations\.(\w*Flip|Random\w+|\w*Rotate|ColorJitter|HueSaturationValue|GaussNoise|ElasticTransform)$"
)
_DRAWS = re.compile(
    r"^(torch\.(rand|randn|randint|rand_like|randn_like|normal|bernoulli)"
    r"|numpy\.random\.(rand|randn|randint|random|uniform|normal|choice|random_sample|standard_normal)"
    r"|random\.(random|randint|uniform|gauss|choice|randrange|normalvariate))$"
)
_HELD_OUT = ("test", "val", "valid", "validation")
# the data sets of square pictures, with their side
_SIDES = {
    "CIFAR10": 32, "CIFAR100": 32, "SVHN": 32, "MNIST": 28, "FashionMNIST": 28, "KMNIST": 28, "EMNIST": 28, "STL10": 96, "USPS": 16,
}  # fmt: skip
_PARTS_HELD_OUT = {*_HELD_OUT, "dev", "eval"}
_SAYS_HELD_OUT = re.compile(
    r"(^|[^a-z])(test|val|valid|validation|eval|testing)(set|data|dataset|ds|dir|path|df)?([^a-z]|$)",
    re.IGNORECASE,
)
_TRANSFORMS = (
    "transform", "transforms", "target_transform", "augment", "augmentation", "train", "training", "is_train",
)  # fmt: skip
_SWITCH = re.compile(r"train|aug|flip|jitter|random|^(split|mode|phase|subset|stage)$")
# what a program measures by: others look at pictures of such a set
_COMPARED = sorted({*operations(numbers="index"), *operations(numbers="equal"), "topk"})
_MEASURES = (*_COMPARED, *(f"torch.{each}" for each in _COMPARED), "torch.max")


# Drawn of these is only whether they are done.
_BY_CHANCE_ALONE = ("Flip", "Grayscale", "Invert", "Autocontrast", "AutoContrast", "Equalize")


class AugmentedEvaluation(SourceCheck):
    """The test set is given random augmentations by its transform, or a part of random_split() the transform of another one.

    Why: the accuracy is measured on other images each time, and mostly too low. Set through `.dataset`, which is the same
    object for all parts, the last transform holds for all: the training has lost its augmentation, or the validation has it.

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

    Fix: one transform for training, and one without chance for evaluation; of a split, two data sets with a transform
    each, and torch.utils.data.Subset with the indices.

    Evidence: 186 repositories, beds B, H, Q, R, S, T, U, V, W, X, Y: 40 true, 2 debatable, 6 false.
    """

    code = "DATA019"
    words = ("transform", "random_split", "DataLoader")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a torchvision data set of held-out data whose transform has a random part."""
        for name, call in module.calls_matching("torchvision.datasets."):
            transform = argument(call, None, "transform")
            held_out = literal(module, argument(call, None, "train")) is False or (
                literal(module, argument(call, None, "split")) in _HELD_OUT
            )
            square = _SIDES.get(name.rsplit(".", 1)[-1])
            if (
                held_out
                and transform is not None
                and (random := self._random_transform_name(module, transform, square))
                and not is_unused_data(module, call)
            ):
                yield At(call, f"{name.rsplit('.', 1)[-1]} for evaluation is augmented by {random}.", RISK)

        yield from self._find_in_custom_datasets(module)
        yield from _find_parent_transform_changes(module)
        for call in module.calls("torch.utils.data.random_split"):
            data = argument(call, 0, "dataset")
            made = module.definitions(data) if isinstance(data, (ast.Name, ast.Attribute)) else [data]
            if (
                len(made) == 1
                and isinstance(made[0], ast.Call)
                and _has_eval_part_without_transform(module, call)
            ):
                transform = argument(made[0], None, "transform")
                random, _ = self._random_augmentation(module, made[0], transform)
                if random:
                    yield At(call, f"Both parts are augmented by {random}, the one for evaluation too.", RISK)

    def _find_in_custom_datasets(self, module: SourceModule) -> Iterator[At]:
        """Report a set that is called one for evaluation, of folders or of a class of the program."""
        program = module.program
        if not (program.called_anywhere("backward", "fit") and program.called_anywhere(*_MEASURES)):
            return
        for call in module.all(ast.Call):
            name = last_part(call.func)
            transform = _dataset_transform(module, call) if name[:1].isupper() else None
            random, given = (
                self._random_augmentation(module, call, transform) if name[:1].isupper() else (None, None)
            )
            if random and _is_named_for_evaluation(module, call, given) and not is_unused_data(module, call):
                yield At(call, f"{name} for evaluation is augmented by {random}.", RISK)

    def _random_augmentation(
        self, module: SourceModule, call: ast.Call, transform: ast.expr | None
    ) -> tuple[str | None, ast.expr | None]:
        """Return what changes the examples of a set by chance, and what the call gives for that."""
        if transform is not None:
            return self._random_transform_name(module, transform), transform
        owner, start = module.classes.named(call.func), module.functions.constructor(call)
        item = module.classes.method(owner, "__getitem__") if owner is not None else None
        if item is None or start is None:
            return None, None
        home = module.home(item)
        for drawn in home.inside(item, ast.Call):
            switch = _guarding_attribute(home, drawn) if self._is_random_call(home, drawn) else None
            if switch is not None and is_taken(home, drawn, SettledValues(home, [call])):
                return f"what self.{switch} switches on", argument_for(start, call, switch)
        return None, None

    def _is_random_call(self, module: SourceModule, call: ast.Call) -> bool:
        """Tell a draw, and a call of what draws: a function, a method or a transform."""
        function = module.functions.target(call)
        calls = [call, *module.home(function).inside(function, ast.Call)] if function is not None else [call]
        drawn = (_DRAWS.match(module.home(each).qualify(each.func) or "") for each in calls)
        return any(drawn) or (
            is_self(getattr(call.func, "value", None))
            and bool(self._random_transform_name(module, call.func))
        )

    def _random_transform_name(
        self, module: SourceModule, transform: ast.expr, side: int | None = None
    ) -> str | None:
        sources = [transform, *module.definitions(transform)]
        if len(sources) > 2 or None in sources:
            return None
        for source in sources:
            for call in walk(source) if source is not None else ():
                name = module.qualify(call.func) or "" if isinstance(call, ast.Call) else ""
                if (
                    _RANDOM.match(name)
                    and not _has_probability_zero_or_one(module, call)
                    and not _is_full_size_crop(module, call, side)
                ):
                    return name.rsplit(".", 1)[-1]
                if isinstance(call, ast.Call) and _is_random_custom_transform(module, call):
                    return last_part(call.func)
        return None


def _is_random_custom_transform(module: SourceModule, call: ast.Call) -> bool:
    """Tell a transform of the program that draws in its call: `if random.random() < 0.3`."""
    owner = module.classes.named(call.func)
    applied = module.classes.method(owner, "__call__") if owner is not None else None
    if applied is None:
        return False
    home = module.home(applied)
    return any(_DRAWS.match(home.qualify(each.func) or "") for each in home.inside(applied, ast.Call))


def _guarding_attribute(module: SourceModule, drawn: ast.Call) -> str | None:
    """Return the option of the object that decides whether a line is reached: `if self.train`."""
    below: ast.AST = drawn
    for above in module.ancestors(drawn):
        for test, _ in tests_that_skip(above, below):
            for part in walk(test):
                if isinstance(part, ast.Attribute) and is_self(part.value) and _SWITCH.search(part.attr):
                    return part.attr
        below = above
    return None


def _dataset_transform(module: SourceModule, call: ast.Call) -> ast.expr | None:
    """Return the transform that a set of folders, or one of the program's, is given and applies to each example."""
    if (module.qualify(call.func) or "").startswith("torchvision.datasets."):
        is_of_folders = last_part(call.func) in ("ImageFolder", "DatasetFolder")
        return argument(call, 1, "transform") if is_of_folders else None
    owner, start = module.classes.named(call.func), module.functions.constructor(call)
    if owner is None or start is None or module.classes.method(owner, "__getitem__") is None:
        return None
    names = [each for each in parameter_names(start) if "transform" in each or "aug" in each]
    given = [
        each
        for name in names
        if _applies_parameter(module, owner, name)
        if (each := argument_for(start, call, name))
    ]
    return next((each for each in given if not isinstance(each, ast.Constant)), None)


def _applies_parameter(module: SourceModule, owner: ast.ClassDef, name: str) -> bool:
    """Tell whether a data set applies what it is given for a parameter, whatever else it is given."""
    kept = [
        (attribute, each)
        for attribute, found in module.classes.attributes(owner).items()
        for each in found
        if isinstance(each.value, ast.Name) and each.value.id == name
    ]
    if len(kept) != 1 or len(module.classes.attributes(owner)[kept[0][0]]) != 1:
        return False
    item = module.classes.method(owner, "__getitem__")
    home = module.home(item) if item is not None else module
    place = f"self.{kept[0][0]}"
    reads = [each for each in home.inside(item or owner, ast.Attribute) if dotted_name(each) == place]
    tests = [
        above.test
        for each in reads
        for above in home.ancestors(each)
        if isinstance(above, (ast.If, ast.IfExp))
    ]
    others = [
        part
        for test in tests
        for part in walk(test)
        if isinstance(part, ast.Attribute) and dotted_name(part) != place
    ]
    return bool(reads) and not others


def _is_concatenated_dataset(module: SourceModule, data: ast.expr) -> bool:
    """Tell data that are put together with others, `ConcatDataset([train, test])` and `train + test`: of what, is not known."""
    for above in module.ancestors(data):
        if isinstance(above, ast.stmt):
            break
        is_sum = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Add)
        if is_sum or (
            isinstance(above, ast.Call) and last_part(above.func) in ("ConcatDataset", "ChainDataset")
        ):
            return True
    return False


def _is_named_for_evaluation(module: SourceModule, call: ast.Call, transform: ast.expr | None) -> bool:
    """Tell a set that its name, or what it is made of, calls one for evaluation, and nothing one of training."""
    statement = module.statement(call)
    is_loaded = last_part(getattr(module.parents[call], "func", call)) == "DataLoader"
    made = module.parents[call] if is_loaded else call
    targets = statement.targets if isinstance(statement, ast.Assign) and statement.value is made else []
    given = [*call.args, *(each.value for each in call.keywords)]
    texts = [dotted_name(each) or "" for each in targets]
    for part in (part for each in given if each is not transform for part in walk(each)):
        texts += [part.value] if isinstance(part, ast.Constant) and isinstance(part.value, str) else []
        texts += [dotted_name(part) or ""] if isinstance(part, (ast.Name, ast.Attribute)) else []
    if any(
        _is_concatenated_dataset(module, each)
        for each in [
            call,
            *(read for name in map(dotted_name, targets) if name for read in module.reads(name)),
        ]
    ):
        return False
    said = " ".join(texts)
    return bool(_SAYS_HELD_OUT.search(said)) and "train" not in said.lower() and "tta" not in said.lower()


def _has_probability_zero_or_one(module: SourceModule, call: ast.AST) -> bool:
    """Tell a change that is made with probability 1, or 0: the same to each example."""
    given = argument(call, 0, "p") if isinstance(call, ast.Call) else None
    name = module.qualify(call.func) or "" if isinstance(call, ast.Call) else ""
    return name.endswith(_BY_CHANCE_ALONE) and literal(module, given) in (0, 1)


def _is_full_size_crop(module: SourceModule, crop: ast.AST, side: int | None) -> bool:
    """Tell a random crop of the size that pictures have already: by the Resize before it, or as the data set has them (square)."""
    around = module.parents.get(crop)
    is_crop = isinstance(crop, ast.Call) and (module.qualify(crop.func) or "").endswith(".RandomCrop")
    if not (is_crop and isinstance(crop, ast.Call)) or argument(crop, 1, "padding") is not None:
        return False
    before = around.elts[: around.elts.index(crop)] if isinstance(around, (ast.List, ast.Tuple)) else []
    resized = [
        each
        for each in before
        if isinstance(each, ast.Call) and (module.qualify(each.func) or "").endswith((".Resize", ".Scale"))
    ]
    wanted = _height_and_width(module, argument(crop, 0, "size"))
    if not resized:
        return wanted is not None and wanted == (side, side)
    given = argument(resized[-1], 0, "size")
    is_pair = isinstance(given, (ast.Tuple, ast.List)) or side is not None  # one number is the shorter edge
    return is_pair and wanted is not None and wanted == _height_and_width(module, given)


def _height_and_width(module: SourceModule, given: ast.expr | None) -> tuple[object, object] | None:
    """Return height and width that an argument tells, as numbers or as what is written."""
    if given is None:
        return None
    parts = given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given, given]
    values = [value if (value := literal(module, each)) is not None else ast.unparse(each) for each in parts]
    return (values[0], values[-1]) if len(values) == 2 else None


def _has_eval_part_without_transform(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether one part is named for evaluation, and no line gives that a transform of its own."""
    statement = module.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    parts = target.elts if isinstance(target, ast.Tuple) else []
    words = [set(re.split(r"[^a-z]+", (dotted_name(each) or "").lower())) for each in parts]
    mended = any(
        isinstance(each, ast.Attribute) and each.attr == "transform" and isinstance(each.ctx, ast.Store)
        for each in module.all(ast.Attribute)
    )
    return any(each & _PARTS_HELD_OUT for each in words) and not mended


def _find_parent_transform_changes(module: SourceModule) -> Iterator[At]:
    """Report `part.dataset.transform = ...` for a name that random_split gave, unless a part gets a set of its own."""
    for node in module.all(ast.Assign) if "random_split" in module.text else ():
        target = node.targets[0]
        whole = target.value if isinstance(target, ast.Attribute) and target.attr in _TRANSFORMS else None
        if (
            not isinstance(whole, ast.Attribute)
            or whole.attr != "dataset"
            or not _is_random_split_part(module, whole.value)
        ):
            continue
        if (
            not _is_dataset_copied_per_part(module, node)
            and not _is_set_again_for_other_part(module, node)
            and _has_other_split_parts_in_use(module, whole.value)
        ):
            yield At(
                node, f"{ast.unparse(whole)} is the whole data set: this is set for its other parts, too."
            )


def _is_random_split_part(module: SourceModule, node: ast.expr) -> bool:
    """Tell a name, or an attribute, that is unpacked from `random_split(...)`."""
    unpacked = module.resolver.unpacked(node) if isinstance(node, ast.Name) else None
    values = [value for value, _ in unpacked or []]
    if isinstance(node, ast.Attribute) and (owner := module.classes.of(node.value)) is not None:
        bindings = module.resolver.attribute_bindings(owner, node.attr)
        values = [each.value for each in bindings if each.value is not None and each.how == "unpack"]
    calls = [module.qualify(each.func) if isinstance(each, ast.Call) else None for each in values]
    return bool(calls) and all(each == "torch.utils.data.random_split" for each in calls)


def _has_other_split_parts_in_use(module: SourceModule, part: ast.expr) -> bool:
    """Tell a split of which another part is read, too: of one whose others are dropped, the whole set is that part's own."""
    if not isinstance(part, ast.Name) or not (unpacked := module.resolver.unpacked(part)):
        return True
    line, scope = module.statement(unpacked[0][0]), module.scope(part)
    targets = line.targets if isinstance(line, ast.Assign) else []
    names = {each.id for target in targets for each in walk(target) if isinstance(each, ast.Name)} - {part.id}
    if scope is module.tree and any(not each.startswith("_") for each in names):
        return True  # another file may read it
    return any(module.scope(read) is scope for name in names for read in module.reads(name))


def _is_set_again_for_other_part(module: SourceModule, node: ast.Assign) -> bool:
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
        and _is_from_same_split(module, target.value, other.value)
        for each in follows
    )


def _is_from_same_split(module: SourceModule, one: ast.expr, other: ast.expr) -> bool:
    """Tell parts that one line draws: the same call is behind both."""
    calls = []
    for each in (one, other):
        part = each.value if isinstance(each, ast.Attribute) else each
        unpacked = module.resolver.unpacked(part) if isinstance(part, ast.Name) else None
        calls.append([value for value, _ in unpacked or []])
    return bool(calls[0]) and calls[0] == calls[1]


def _is_dataset_copied_per_part(module: SourceModule, node: ast.AST) -> bool:
    """Tell `part.dataset = copy.copy(part.dataset)`."""
    return any(
        isinstance(each, ast.Attribute) and each.attr == "dataset" and dotted_name(each) != "self.dataset"
        for store in module.all(ast.Assign)
        for each in store.targets
        if module.scope(store) is module.scope(node)
    )
