# SPDX-License-Identifier: Apache-2.0
"""The training set under another name."""

import ast
import re
from collections.abc import Iterator
from functools import partial

from truestep.doctor.check import ADVICE, BUG, RISK, At, SourceCheck
from truestep.doctor.source.loaders import training_loaders
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import assignment_target, dotted_name, is_none, last_part, names_in, walk
from truestep.doctor.source.value_origins import argument, constant, literal

_HELD_OUT = re.compile(r"(^|_)(test|val|valid|validation|heldout)(_|$|set|loader|data)", re.IGNORECASE)
# of data: what a figure is called, as `val_loss`, says little
_DATA = "(_?(set|loader|data|dl|iter|ds|mask|idx|x|y)|$)"
_TEST = re.compile(rf"(^|_)test{_DATA}", re.IGNORECASE)
_VALID = re.compile(rf"(^|_)(val|valid|validation|dev|heldout){_DATA}", re.IGNORECASE)
_KEEPS = ("save", "state_dict", "deepcopy", "checkpoint")
_ORDERED = (ast.Gt, ast.GtE, ast.Lt, ast.LtE)
_LOADER = re.compile(r"(loader|set|data|dl|iter|ds)$", re.IGNORECASE)
_TRAIN = re.compile(r"(^|_)(train|training)(_|$|set|data)", re.IGNORECASE)


class TrainingDataEvaluated(SourceCheck):
    """What is named as test data is the training set, is trained on, or decides which weights are kept.

    Why: the model is measured on what it has learned by heart, or by what it was chosen by: the best of many figures
    of the test set is too good.

    Bad:
        train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
        test_loader = DataLoader(train_set, batch_size=32)  # here

    Good:
        train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
        test_loader = DataLoader(test_set, batch_size=32)

    Fix: give the loader the data that were held out; no backward() and step() in the loop that evaluates. Keep
    a part of the training data apart to choose the weights by, and test once.

    Evidence: 186 repositories: said 2 times, not judged; beds C, E, F, I, K, L, M, R, T, U, Y: 12 true, 4
    debatable, 2 false.
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
                yield from _find_unused_held_out_data(module, statement, name)
            if not isinstance(call, ast.Call):
                continue
            if module.qualify(call.func) == "torch.utils.data.DataLoader":
                data = argument(call, 0, "dataset")
                given = last_part(data) if data is not None else ""
                sampled = any(argument(call, i, word) for i, word in ((3, "sampler"), (4, "batch_sampler")))
                is_named = _TRAIN.search(given) and not _HELD_OUT.search(given)
                if (
                    data is not None
                    and is_named
                    and not sampled
                    and not _is_built_from_held_out_data(module, data)
                    and not _says_training(module, statement)
                    and not _is_other_data_trained_on(module, call, given)
                ):
                    yield At(call, f"{name!r} reads {given!r}: it measures on the training data.", RISK)
            elif (module.qualify(call.func) or "").startswith("torchvision.datasets."):
                if literal(module, argument(call, 1, "train")) is True and not _has_dataset_split(module):
                    severity = ADVICE if _is_only_trained_on(module, name) else BUG
                    yield At(call, f"{name!r} is made with train=True: it is the training data.", severity)
        yield from _find_trained_held_out_data(module)
        yield from _choices_by_test_data(module)


def _find_trained_held_out_data(module: SourceModule) -> Iterator[At]:
    """Report held-out data that a loop trains on, beside another one that trains on training data."""
    named = {
        each.node: last_part(assignment_target(above))
        for each in training_loaders(module, always=True)
        if (above := _assignment_of_loader(module, each.node))
    }
    training = [each for each in named.values() if _TRAIN.search(each) and not _HELD_OUT.search(each)]
    for loader, name in named.items():
        if training and _HELD_OUT.search(name) and not _TRAIN.search(name) and module.home(loader) is module:
            yield At(loader, f"A loop trains on {name!r}, as another one on {training[0]!r}.", RISK)


def _choices_by_test_data(module: SourceModule) -> Iterator[At]:
    """Report a test of the best figure so far that keeps weights or ends the training, by a figure of test data."""
    for test in module.all(ast.If) if module.program.training_loops() else ():
        compared = [
            each
            for each in walk(test.test)
            if isinstance(each, ast.Compare) and isinstance(each.ops[0], _ORDERED)
        ]
        sides = [side for each in compared for side in (each.left, each.comparators[0])]
        figures = [each for each in sides if "best" not in ast.unparse(each).lower()]
        if not any("best" in ast.unparse(each).lower() for each in sides) or not _keeps_or_ends(test):
            continue
        words = {word for each in figures for word in _names_behind_figure(module, each)}
        named = any(last_part(each).startswith("test_") for each in figures)
        if (named or any(map(_TEST.search, words))) and not any(map(_VALID.search, words)):
            beside = sorted(
                each for each in module.program.identifiers if _VALID.search(each) and _LOADER.search(each)
            )
            text = f"The test data decide here which weights are kept{f', and {beside[0]!r} is there' if beside else ''}."
            yield At(test.test, text, RISK if beside else ADVICE)


def _keeps_or_ends(test: ast.If) -> bool:
    parts = [part for each in (*test.body, *test.orelse) for part in walk(each)]
    called = [last_part(each.func).lower() for each in parts if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.Break) for each in parts) or any(
        word in name for name in called for word in _KEEPS
    )


def _names_behind_figure(module: SourceModule, figure: ast.expr) -> set[str]:
    """Return the names and texts that a figure is computed from, and those of the loops that add it up."""
    behind = partial(_computed_from, module, module.scope(figure))
    start: list[ast.AST] = [figure]
    parts = [part for each in walk_each_once(start, behind) for part in walk(each)]
    functions = {each.func for each in parts if isinstance(each, ast.Call)}
    named = [each for each in parts if isinstance(each, (ast.Name, ast.Attribute)) and each not in functions]
    texts = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return {*map(last_part, named), *texts}


def _computed_from(module: SourceModule, scope: ast.AST, node: ast.AST) -> list[ast.AST]:
    """Return what gives the names of an expression their values, and what the loops and functions go through that do."""
    parts = list(walk(node))
    made = [each for part in parts if isinstance(part, ast.Name) for each in module.resolver.reaching(part)]
    given = [module.statement(each.node) for each in made if module.scope(each.node) is scope]
    found: list[ast.AST | None] = [getattr(each, "value", None) for each in given]
    found += [loop.iter for each in given if isinstance(loop := module.loop(each), ast.For)]
    for call in parts:
        function = module.functions.target(call) if isinstance(call, ast.Call) else None
        if function is not None and isinstance(call, ast.Call) and not _is_given_held_out_data(call):
            found += [each.iter for each in module.home(function).inside(function, ast.For)]
            found += module.functions.results(function)
    return [each for each in found if isinstance(each, ast.AST)]


def _is_given_held_out_data(call: ast.Call) -> bool:
    return any(_HELD_OUT.search(last_part(each)) for each in call.args)


def _assignment_of_loader(module: SourceModule, loader: ast.AST) -> ast.Assign | None:
    above = module.home(loader).parents[loader]
    return above if isinstance(above, ast.Assign) else None


def _says_training(module: SourceModule, statement: ast.Assign) -> bool:
    """Tell a comment above that says it: the training data are measured on purpose."""
    above = module.lines[statement.lineno - 2].strip() if statement.lineno > 1 else ""
    return above.startswith("#") and re.search(r"\btrain", above, re.IGNORECASE) is not None


def _is_other_data_trained_on(module: SourceModule, loader: ast.Call, name: str) -> bool:
    """Tell data that no other loader reads where one is there that trains: only their name says training."""
    others = [
        (above, argument(each, 0, "dataset"))
        for each in module.calls("torch.utils.data.DataLoader")
        if each is not loader and (above := _assignment_of_loader(module, each)) is not None
    ]
    read = {
        last_part(above.targets[0]): _names_with_origins(module, data)
        for above, data in others
        if data is not None
    }
    training = [names for kept, names in read.items() if _TRAIN.search(kept) and not _HELD_OUT.search(kept)]
    return bool(training) and not any(name in names for names in training)


def _names_with_origins(module: SourceModule, data: ast.expr) -> set[str]:
    made = [data, *(each for each in module.definitions(data) if each is not None)]
    parts = [part for each in made for part in walk(each) if isinstance(part, (ast.Name, ast.Attribute))]
    return {last_part(each) for each in parts}


def _is_only_trained_on(module: SourceModule, name: str) -> bool:
    """Tell data that are gone through to train and for nothing else: they have another's name."""
    made = [each for each in module.all(ast.Assign) if name in names_in(each.value)]
    names = {name, *(last_part(each.targets[0]) for each in made)}
    loops = [each for each in module.all(ast.For) if not names.isdisjoint(names_in(each.iter))]
    training = module.program.training_loops()
    return bool(loops) and all(each in training for each in loops)


def _is_built_from_held_out_data(module: SourceModule, data: ast.expr) -> bool:
    """Tell a name that alone says training: what the data are made of says, on every way to it, that it is held out."""
    made = module.definitions(data)
    return bool(made) and all(each is not None and _is_named_held_out(each) for each in made)


def _is_named_held_out(made: ast.expr) -> bool:
    """Tell so of names and texts in an expression, and of `train=False`, where nothing else in it says training."""
    parts = [each for each in walk(made) if not isinstance(each, ast.keyword)]
    names = [last_part(each) for each in parts if isinstance(each, (ast.Name, ast.Attribute))]
    texts = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    words = [each for each in walk(made) if isinstance(each, ast.keyword) and each.arg == "train"]
    is_off = any(constant(each.value) is False for each in words)
    said = [*names, *texts]
    trains = any(_TRAIN.search(each) for each in said) or any(constant(each.value) is True for each in words)
    return (is_off or any(_HELD_OUT.search(each) for each in said)) and not trains


def _find_unused_held_out_data(module: SourceModule, statement: ast.Assign, name: str) -> Iterator[At]:
    """Report the training data where a test has just made sure that there are held-out ones, which stay unused."""
    given, test = last_part(statement.value), module.parents[statement]
    if not isinstance(test, ast.If) or not _TRAIN.search(given) or _HELD_OUT.search(given):
        return
    sure = _name_tested_not_none(test, statement in test.body)
    if sure is not None and _HELD_OUT.search(sure.rsplit(".", 1)[-1]):
        arm = test.body if statement in test.body else test.orelse
        if not any(dotted_name(each) == sure for part in arm for each in walk(part)):
            yield At(statement, f"{sure!r} is there, and {name!r} is given {given!r}.", RISK)


def _name_tested_not_none(test: ast.If, in_body: bool) -> str | None:
    """Return x for the body of `if x is not None:`, and for the else of `if x is None:`."""
    asked = test.test
    if not isinstance(asked, ast.Compare) or len(asked.ops) != 1 or not is_none(asked.comparators[0]):
        return None
    there = isinstance(asked.ops[0], ast.IsNot)
    return dotted_name(asked.left) if there is in_body else None


def _has_dataset_split(module: SourceModule) -> bool:
    """Held-out data may be a part of the training set, e.g. by Subset(val_set, indices) or a sampler."""
    uses = {"random_split", "Subset", "sampler", "SubsetRandomSampler"}
    return bool(uses & module.program.identifiers)
