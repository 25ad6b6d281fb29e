# SPDX-License-Identifier: Apache-2.0
"""NameMisspelt."""

import ast
import difflib
import sys
import types
from typing import Any

from truestep.explainer.explainer import Cause, Crash, Explainer, Match
from truestep.explainer.known_names import GONE, IMPORTS, KINDS, MODULES, OF_OTHER_TORCH, TENSOR_NAMES
from truestep.explainer.values import is_layer_at_crash, torch_at_crash


class NameMisspelt(Explainer):
    """An attribute, a name or a keyword does not exist; often one like it does.

    Means: a typing mistake, a name of another version of a package, or something that was never set.

    Raises:
        layer = nn.Linear(2, 2)
        layer.wieght

    Works:
        layer = nn.Linear(2, 2)
        layer.weight

    Fix: correct the name; if it is right, look at the version of the package (a name may be newer or gone), and at whether what
    the line has is the object that was meant: print(type(x)).
    """

    types = ("AttributeError", "NameError", "TypeError", "ImportError")
    messages = (
        r"'?(?P<kind>[\w.]{1,200})'? object has no attribute '(?P<attribute>\w+)'",
        r"module '(?P<module>(?!numpy')[\w.]+)' has no attribute '(?P<attribute>\w+)'",
        r"type object '(?P<kind>\w+)' has no attribute '(?P<attribute>\w+)'",
        r"name '(?P<name>\w+)' is not defined",
        r"(?P<function>[\w.<>]{1,200})\(\) got an unexpected keyword argument '(?P<keyword>\w+)'",
        r"cannot import name '(?P<attribute>\w+)' from '(?P<module>[\w.]+)'",
    )
    checks = ("DEV002", "PARAM019", "SAVE002", "OLD005")
    not_in_a_log = "which names the object has"

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        found = {name: value for name, value in match.groupdict().items() if value}
        if "attribute" in found:
            return _attribute(crash, found)
        if "name" in found:
            return _name(crash, found["name"])
        return _keyword(crash, found["function"], found["keyword"])


_MAX_LISTED = 8


def _near(wanted: str, known: list[str]) -> str | None:
    close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.75)
    return close[0] if close else next((each for each in known if each.lower() == wanted.lower()), None)


def _attribute(crash: Crash, found: dict[str, str]) -> Cause | None:
    attribute, owner = found["attribute"], found.get("module") or found.get("kind", "")
    told = _told_by_name(attribute, owner)
    if told is not None:
        return told
    known = _names_of(crash, found)
    near = _near(attribute, known)
    if near:
        return Cause(f"{owner} has no {attribute}, but it has {near}.", f"write {near}.")
    if found.get("module"):
        return _missing_in_module(crash, attribute, owner)
    return (
        Cause(f"nothing has set {attribute} on this {owner}; its names have none like it.") if known else None
    )


def _told_by_name(attribute: str, owner: str) -> Cause | None:
    """Return what the names alone tell: None has no shape, a wrapped model hides its own attributes."""
    if owner in ("DataParallel", "DistributedDataParallel"):
        return Cause(
            f"the model is wrapped: {attribute} is the inner model's.", f"write model.module.{attribute}."
        )
    if attribute == "module":
        return Cause(
            f"the {owner} is not wrapped: only DataParallel and DistributedDataParallel have .module.",
            'leave .module out, or write getattr(model, "module", model).',
        )
    if attribute in OF_OTHER_TORCH:
        says = f"the {owner} was pickled whole by another version of torch, which had no {attribute}."
        return Cause(says, OF_OTHER_TORCH[attribute])
    if owner in MODULES:
        return Cause(*MODULES[owner])
    if owner in ("float", "int") and attribute not in TENSOR_NAMES:
        return Cause(
            f"the value is a number of Python's ({owner}), where something that has {attribute} was expected."
        )
    if owner in KINDS:
        says, fix = KINDS[owner]
        return Cause(f"{says}.", fix.format(attribute=attribute))
    return None


def _missing_in_module(crash: Crash, attribute: str, module: str) -> Cause:
    root = module.partition(".")[0]
    version = getattr(sys.modules.get(root), "__version__", None) if crash.is_live else None
    where = f" (version {version})" if version else ""
    return Cause(
        f"{module}{where} has no {attribute}: another version of the package, or a file of your own called {root}.py."
    )


def _names_of(crash: Crash, found: dict[str, str]) -> list[str]:
    """Return the names that the owner has; from the exception itself where Python keeps it."""
    if found.get("module"):
        module = sys.modules.get(found["module"]) if crash.is_live else None
        return [name for name in dir(module) if not name.startswith("__")] if module is not None else []
    owner = _owner(crash, found.get("kind", ""))
    if owner is None:
        torch = torch_at_crash()
        return (
            dir(torch.Tensor)
            if found.get("kind") in ("Tensor", "torch.Tensor", "Parameter") and torch is not None
            else []
        )
    names = [*dir(type(owner)), *getattr(owner, "__dict__", {})]
    if is_layer_at_crash(owner):
        # A module holds these in dicts of its own, which neither dir() of its class nor its __dict__ shows.
        names += [*owner._modules, *owner._parameters, *owner._buffers]
    return [name for name in names if not name.startswith("__")]


def _owner(crash: Crash, kind: str) -> Any:
    owner = getattr(crash.error, "obj", None)
    if owner is not None:
        return owner
    for each in crash.values:
        if type(each.value).__name__ == kind:
            return each.value
    frames = [frame.locals().get("self") for frame in reversed(crash.frames)]
    return next((each for each in frames if type(each).__name__ == kind), None)


def _name(crash: Crash, name: str) -> Cause | None:
    if crash.user is None or crash.user.live is None:
        return Cause(f"{name} is set nowhere before this line.", IMPORTS.get(name, ""))
    known = [*crash.user.locals(), *crash.user.live.f_globals]
    near = _near(name, [each for each in known if not each.startswith("__")])
    if name in IMPORTS:
        return Cause(f"{name} is not imported.", IMPORTS[name])
    return Cause(f"there is no {name}, but there is {near}.", f"write {near}.") if near else None


def _keyword(crash: Crash, function: str, keyword: str) -> Cause | None:
    gone = GONE.get(keyword)
    if gone:
        return Cause(f"{function} takes no {keyword} any more.", gone)
    known = _parameters(crash, function)
    near = _near_keyword(keyword, known)
    if near:
        return Cause(f"{function} takes no {keyword}, but it takes {near}.", f"write {near}=.")
    listed = ", ".join(known[:_MAX_LISTED]) + (", ..." if len(known) > _MAX_LISTED else "")
    return Cause(
        f"{function} takes no {keyword}{f'; it takes {listed}' if known else ''}: written for another version of that "
        "package, or meant for another function."
    )


def _near_keyword(wanted: str, known: list[str]) -> str | None:
    """Return the parameter that a keyword stands for: spelt like it, its initials, or with it among its words."""
    initials = "".join(word[0] for word in wanted.split("_") if word)
    whole = [each for each in known if each == initials or wanted in each.split("_")]
    return _near(wanted, known) or (whole[0] if len(whole) == 1 and len(whole[0]) > 1 else None)


def _parameters(crash: Crash, function: str) -> list[str]:
    """Return the parameters of the function that the user's line calls; a class's are those of its __init__."""
    import inspect

    try:
        found = _called(crash, function)
        return (
            [name for name in inspect.signature(found).parameters if name not in ("args", "kwargs")]
            if found
            else []
        )
    except (ValueError, TypeError):
        return []


def _called(crash: Crash, function: str) -> Any:
    """Return what the line calls under a name, or as a class that has this __init__ from one of its bases."""
    owner = function.removesuffix(".__init__").rpartition(".")[2]
    for call in crash.written(ast.Call):
        found = _resolved(crash, call.func)
        bases = found.__mro__ if isinstance(found, type) else ()
        if getattr(found, "__name__", "") == owner or any(base.__name__ == owner for base in bases):
            return found
    return None


def _resolved(crash: Crash, written: ast.expr) -> Any:
    """Return what a dotted name stands for: through modules alone, whose attributes are stored in them."""
    if isinstance(written, ast.Attribute):
        home = _resolved(crash, written.value)
        return vars(home).get(written.attr) if isinstance(home, types.ModuleType) else None
    return crash.user.lookup(written.id) if isinstance(written, ast.Name) and crash.user else None
