# SPDX-License-Identifier: Apache-2.0
"""`self.weight` is read, and __init__ takes `weight` and never stores it."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.cached_questions import mentions_torch
from truestep.doctor.source.elided_code import has_left_out_lines
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, dotted_name, is_self, walk

_KNOWN = ("object", "torch.nn.Module", "torch.utils.data.Dataset", "abc.ABC", "torch.autograd.Function")
_OPEN = ("__getattr__", "__getattribute__", "setattr", "__dict__", "vars", "locals", "save_hyperparameters")


class OptionNeverStored(SourceCheck):
    """A class reads an attribute that is named after an option of its __init__, which never stores it.

    Why: the first use raises an AttributeError, often long after the start.

    Bad:
        class SmoothLoss(nn.Module):
            def __init__(self, smoothing=0.1, scale=1.0):
                super().__init__()
                self.smoothing = smoothing

            def forward(self, outputs, labels):
                loss = F.cross_entropy(outputs, labels, label_smoothing=self.smoothing)
                return self.scale * loss  # here

    Good:
        class SmoothLoss(nn.Module):
            def __init__(self, smoothing=0.1, scale=1.0):
                super().__init__()
                self.smoothing = smoothing
                self.scale = scale

            def forward(self, outputs, labels):
                loss = F.cross_entropy(outputs, labels, label_smoothing=self.smoothing)
                return self.scale * loss

    Fix: store it in __init__.

    Evidence: 186 repositories, beds F, I, K, L, N, P, R, S, U, V, X, Y: 28 true, 3 debatable, 1 false.
    """

    code = "PARAM047"
    holds_anywhere = True

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the first such read in a class all of whose bases are in sight."""
        if not module.program.answer(mentions_torch):
            return
        for owner in module.named_classes:
            options = _init_options(owner).difference(module.classes.attributes(owner))
            if not options or not _are_all_bases_in_sight(module, owner):
                continue
            seen: set[str] = set()
            for read in module.inside(owner, ast.Attribute):
                own = is_self(read.value)
                if (
                    not own
                    or read.attr not in options
                    or read.attr in seen
                    or not isinstance(read.ctx, ast.Load)
                ):
                    continue
                if module.enclosing(read, ast.ClassDef) is owner and not _is_attribute_set(
                    module, owner, read.attr
                ):
                    seen.add(read.attr)
                    yield At(
                        read, f"Nothing sets self.{read.attr}: __init__ takes {read.attr!r} and drops it."
                    )


def _init_options(owner: Class) -> set[str]:
    made = [each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return {each.arg for init in made for each in [*init.args.args[1:], *init.args.kwonlyargs]}


def _are_all_bases_in_sight(module: SourceModule, owner: Class) -> bool:
    """Tell whether all that could set an attribute of a class is in the program."""
    of_heirs = [base for each in module.classes.subclasses_of(owner) for base in each.bases]
    if any(module.classes.named(base) is None and module.qualify(base) not in _KNOWN for base in of_heirs):
        return False  # a part to be mixed in
    for each in module.classes.lineage(owner):
        for base in each.bases:
            if module.classes.named(base) is None and module.qualify(base) not in _KNOWN:
                return False
        if each.decorator_list or _is_mixin(each) or has_left_out_lines(module.home(each), each):
            return False
        names = {getattr(part, "id", getattr(part, "attr", getattr(part, "name", ""))) for part in walk(each)}
        if not names.isdisjoint(_OPEN):
            return False
    return True


def _is_mixin(owner: Class) -> bool:
    """Tell a class without bases that hands arguments on to the next one's __init__."""
    calls = [each for each in walk(owner) if isinstance(each, ast.Call) and (each.args or each.keywords)]
    made = [
        each.func for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "__init__"
    ]
    return not owner.bases and any(isinstance(each.value, ast.Call) for each in made)


def _is_name_passed_as_text(module: SourceModule, name: str) -> bool:
    """Tell whether a call is given the attribute's name as a text, as setattr() and register_buffer() are."""
    if name not in module.program.texts:
        return False
    return any(
        isinstance(file.parents[each], (ast.Call, ast.List, ast.Tuple, ast.keyword))
        for file in module.program.linked
        for each in file.all(ast.Constant)
        if each.value == name
    )


def _is_attribute_set(module: SourceModule, owner: Class, name: str) -> bool:
    """Tell whether anything gives the class such an attribute."""
    if any(
        name in module.classes.attributes(each)
        for each in [*module.classes.lineage(owner), *module.classes.subclasses_of(owner)]
    ):
        return True
    if _is_name_passed_as_text(module, name):
        return True
    own = {*module.classes.lineage(owner), *module.classes.subclasses_of(owner)}
    for base, _ in module.index.written.get(name, ()):
        if dotted_name(base) != "self" or module.enclosing(base, ast.ClassDef) in own:
            return True
    return any(
        isinstance(part, (ast.FunctionDef, ast.ClassDef)) and part.name == name
        for each in module.classes.lineage(owner)
        for part in each.body
    )
