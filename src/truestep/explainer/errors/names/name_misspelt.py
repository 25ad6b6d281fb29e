# SPDX-License-Identifier: Apache-2.0
import ast
import difflib
import sys
import types
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.values import is_layer_at_crash, torch_if_imported


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

    Cases:
        `owner=DataParallel;` or `owner=DistributedDataParallel;`: the model is wrapped: {attribute} is the inner model's.
            Fix: write model.module.{attribute}.
        `attribute=module;`: the {owner} is not wrapped: only DataParallel and DistributedDataParallel have .module.
            Fix: leave .module out, or write getattr(model, "module", model).
        `attribute=recompute_scale_factor;`: the {owner} was pickled whole by another version of torch, which had no
            recompute_scale_factor.
            Fix: load it with the torch that saved it, and save model.state_dict(); or delete the argument from the layer's
            forward.
        `module=torch._C;`: this torch is built without {attribute}: a part of CUDA, of another device or of distributed training
            that this build leaves out.
            Fix: print(torch.__version__, torch.version.cuda): "+cpu" or None has no CUDA. Install a build that has it, or choose
            the device: "cuda" if torch.cuda.is_available() else "cpu".
        `number=`: the value is a number of Python's ({owner}), where something that has {attribute} was expected.
        `owner=distutils;`: distutils.version went away from setuptools and Python: an old torch.utils.tensorboard imports
            it so.
            Fix: update torch, or pip install "setuptools<60".
        `owner=NoneType;`: the value is None: what should have made it returned nothing.
            Fix: look for a function without return, a failed search (.grad before backward, re.match), or a call in place
            (list.sort()).
        `owner=_IncompatibleKeys;`: load_state_dict returns a report on keys, and not the model.
            Fix: write model.load_state_dict(state) on a line of its own, and use model after it.
        `owner=tuple;`: the value is a tuple: the call gave several results (LSTM gives output and state; a loader gives
            inputs and labels).
            Fix: unpack it: x, y = batch, or output, state = layer(x).
        `columns=`: the value is a list, of which no tensor was made.
            Fix: write torch.tensor(list) for numbers, torch.stack(list) for tensors of one size; where a data set gives lists:
            dataset.set_format("torch"), or collate=.
        `owner=list;`: the value is a list.
            Fix: take one of its items, or put layers into nn.ModuleList and stack tensors (torch.stack).
        `parts=`: the value is a dict of {parts}, and {attribute} belongs to a tensor in it.
            Fix: take the tensor out by its name: value["{part}"].{attribute}
        `entries=`: the value is a dict, and {attribute} belongs to a tensor in it.
            Fix: take the tensor out by its name first: value["loss"].{attribute}
        `owner=dict;`: the value is a dict.
            Fix: write value["{attribute}"]; a state dict is loaded into a model with model.load_state_dict(state).
        `owner=collections.OrderedDict;` or `owner=OrderedDict;`: the value is a state dict, and not a model.
            Fix: make the model, then model.load_state_dict(state).
        `owner=str;`: the value is a string.
            Fix: look at what was passed: iterating over a dict gives its keys.
        `owner=method;` or `owner=function;` or `owner=builtin_function_or_method;`: the value is a function that was not
            called.
            Fix: write its parentheses before .{attribute}, as in model.parameters() or loss.item().
        `owner=numpy.ndarray;`: the value is a NumPy array, and not a tensor.
            Fix: write torch.from_numpy(array) first.
        `owner=float;`: the value is a number: item() was called already, or a loss was replaced by its value.
            Fix: keep the tensor until backward().
        `owner=int;`: the value is a number, and not a tensor.
            Fix: look at where it was made: sum([]) gives 0.
        otherwise: {owner} has no {attribute}, but it has {near}. Fix: write {near}.
        otherwise: {module}{version} has no {attribute}: another version of the package, or a file of your own called
            {root}.py.
        `known=`: nothing has set {attribute} on this {owner}; its names have none like it.
        `unset=`: {name} is set nowhere before this line. Fix: {import}
        `unset=`: {name} is set nowhere before this line.
        otherwise: {name} is not imported. Fix: {import}
        `keyword=verbose;`: {function} takes no verbose any more.
            Fix: leave verbose out: schedules print nothing since torch 2.7; log schedule.get_last_lr() instead.
        `keyword=names;`: {function} takes no names any more.
            Fix: named tensors are gone since torch 2.13: ts.named gives axes their names, or count them.
        `keyword=size_average;`: {function} takes no size_average any more.
            Fix: write reduction="mean" (or "sum").
        otherwise: {function} takes no {keyword}, but it takes {near_keyword}. Fix: write {near_keyword}=.
        otherwise: {function} takes no {keyword}{listed}: written for another version of that package, or meant for another
            function.
    """

    types = ("AttributeError", "NameError", "TypeError", "ImportError")
    messages = (
        r"'?(?P<kind>[\w.]{1,200})'? object has no attribute '(?P<attribute>\w+)'",
        r"module '(?P<module>[\w.]+)' has no attribute '(?P<attribute>\w+)'",
        r"type object '(?P<kind>\w+)' has no attribute '(?P<attribute>\w+)'",
        r"name '(?P<name>\w+)' is not defined",
        r"(?P<function>[\w.<>]{1,200})\(\) got an unexpected keyword argument '(?P<keyword>\w+)'",
        r"cannot import name '(?P<attribute>\w+)' from '(?P<module>[\w.]+)'",
    )
    checks = ("PARAM019", "SAVE002", "OLD005")
    not_in_a_log = "which names the object has"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        found = {name: value for name, value in match.groupdict().items() if value}
        if "attribute" in found:
            return _attribute_facts(crash, found)
        return _name_facts(crash, found["name"]) if "name" in found else _keyword_facts(crash, found)


_MAX_LISTED = 8


def _closest_match(wanted: str, known: list[str]) -> str | None:
    close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.75)
    return close[0] if close else next((each for each in known if each.lower() == wanted.lower()), None)


def _attribute_names_of_owner(crash: Crash, found: dict[str, str]) -> list[str]:
    """Return the names that the owner has; from the exception itself where Python keeps it."""
    if found.get("module"):
        module = sys.modules.get(found["module"]) if crash.is_live else None
        # names that begin with _ are the module's own: what is like one of them is no cure
        return [name for name in dir(module) if not name.startswith("_")] if module is not None else []
    owner = _object_lacking_attribute(crash, found.get("kind", ""))
    if owner is None:
        torch, is_tensor = torch_if_imported(), found.get("kind") in ("Tensor", "torch.Tensor", "Parameter")
        return dir(torch.Tensor) if is_tensor and torch is not None else []
    names = [*dir(type(owner)), *getattr(owner, "__dict__", {})]
    if is_layer_at_crash(owner):
        # A module holds these in dicts of its own, which neither dir() of its class nor its __dict__ shows.
        names += [*owner._modules, *owner._parameters, *owner._buffers]
    return [name for name in names if not name.startswith("__")]


def _object_lacking_attribute(crash: Crash, kind: str) -> Any:
    owner = getattr(crash.error, "obj", None)
    if owner is not None:
        return owner
    for each in crash.values:
        if type(each.value).__name__ == kind:
            return each.value
    frames = [frame.locals().get("self") for frame in reversed(crash.frames)]
    return next((each for each in frames if type(each).__name__ == kind), None)


def _closest_keyword_parameter(wanted: str, known: list[str]) -> str | None:
    """Return the parameter that a keyword stands for: spelt like it, its initials, or with it among its words."""
    initials = "".join(word[0] for word in wanted.split("_") if word)
    whole = [each for each in known if each == initials or wanted in each.split("_")]
    return _closest_match(wanted, known) or (whole[0] if len(whole) == 1 and len(whole[0]) > 1 else None)


def _parameters_of_called_function(crash: Crash, function: str) -> list[str]:
    """Return the parameters of the function that the user's line calls; a class's are those of its __init__."""
    import inspect

    try:
        found = _callable_on_line(crash, function)
        names = inspect.signature(found).parameters if found else ()
        return [name for name in names if name not in ("args", "kwargs")]
    except (ValueError, TypeError):
        return []


def _callable_on_line(crash: Crash, function: str) -> Any:
    """Return what the line calls under a name, or as a class that has this __init__ from one of its bases."""
    owner = function.removesuffix(".__init__").rpartition(".")[2]
    for call in crash.written(ast.Call):
        found = _resolve_dotted_name(crash, call.func)
        bases = found.__mro__ if isinstance(found, type) else ()
        if getattr(found, "__name__", "") == owner or any(base.__name__ == owner for base in bases):
            return found
    return None


def _resolve_dotted_name(crash: Crash, written: ast.expr) -> Any:
    """Return what a dotted name stands for: through modules alone, whose attributes are stored in them."""
    if isinstance(written, ast.Attribute):
        home = _resolve_dotted_name(crash, written.value)
        return vars(home).get(written.attr) if isinstance(home, types.ModuleType) else None
    return crash.user.lookup(written.id) if isinstance(written, ast.Name) and crash.user else None


def _attribute_facts(crash: Crash, found: dict[str, str]) -> dict[str, str]:
    attribute, owner = found["attribute"], found.get("module") or found.get("kind", "")
    facts = {"owner": owner}
    if owner in ("float", "int") and attribute not in TENSOR_NAMES:
        return {**facts, "number": "yes"}
    if owner == "list" and _is_tensor_attribute_on_list(crash, attribute):
        return {**facts, "columns": "yes"}
    if owner == "dict" and attribute in TENSOR_NAMES:
        return {**facts, **_dict_entries_facts(crash, attribute)}
    known = _attribute_names_of_owner(crash, found)
    if near := _closest_match(attribute, known):
        return {**facts, "near": near}
    if module := found.get("module"):
        root = module.partition(".")[0]
        version = getattr(sys.modules.get(root), "__version__", None) if crash.is_live else None
        return {**facts, "root": root, "version": f" (version {version})" if version else ""}
    return facts | ({"known": "yes"} if known else {})


def _dict_entries_facts(crash: Crash, attribute: str) -> dict[str, str]:
    """Return what a dict holds by name, and which of it has the attribute."""
    value = _object_lacking_attribute(crash, "dict")
    names = [name for name in value if isinstance(name, str)] if type(value) is dict else []
    having = [name for name in names if hasattr(value[name], attribute)]
    if not having:
        return {"entries": "yes"}
    return {"parts": ", ".join(map(repr, names[:_MAX_LISTED])), "part": having[0]}


def _is_tensor_attribute_on_list(crash: Crash, attribute: str) -> bool:
    """Tell whether tensors have the attribute that a list was asked for, and it holds no layers, of which some have it, too."""
    torch, value = torch_if_imported(), _object_lacking_attribute(crash, "list")
    layers = isinstance(value, list) and any(is_layer_at_crash(each) for each in value)
    return not layers and (
        attribute in TENSOR_NAMES or (torch is not None and hasattr(torch.Tensor, attribute))
    )


def _name_facts(crash: Crash, name: str) -> dict[str, str]:
    own = {"import": IMPORTS[name]} if name in IMPORTS else {}
    is_live = crash.user is not None and crash.user.live is not None
    return own if is_live else {"unset": "yes", **own}


def _keyword_facts(crash: Crash, found: dict[str, str]) -> dict[str, str]:
    known = _parameters_of_called_function(crash, found["function"])
    if near := _closest_keyword_parameter(found["keyword"], known):
        return {"near_keyword": near}
    listed = ", ".join(known[:_MAX_LISTED]) + (", ..." if len(known) > _MAX_LISTED else "")
    return {"listed": f"; it takes {listed}" if known else ""}


# what tensors have, and numbers of Python's do not
TENSOR_NAMES = {
    "backward", "item", "detach", "cpu", "cuda", "to", "shape", "size", "dim", "mean", "sum", "numpy", "data",
    "clone", "view",
}  # fmt: skip

# names that are used without their import
IMPORTS = {
    "torch": "write import torch.",
    "nn": "write from torch import nn.",
    "optim": "write from torch import optim.",
    "F": "write import torch.nn.functional as F.",
    "DataLoader": "write from torch.utils.data import DataLoader.",
    "np": "write import numpy as np.",
    "plt": "write import matplotlib.pyplot as plt.",
    "pd": "write import pandas as pd.",
    "os": "write import os.",
    "math": "write import math.",
    "tqdm": "write from tqdm import tqdm.",
    "CUDA_VISIBLE_DEVICES": 'put it in quotes: os.environ["CUDA_VISIBLE_DEVICES"].',
}
