# SPDX-License-Identifier: Apache-2.0
"""Classes counted over one output."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck, Unsure
from truestep.doctor.library.functions import functions
from truestep.doctor.library.operations import operations
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.model_output_counts import is_softmax, is_softmax_already_named, num_outputs
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, walk
from truestep.doctor.source.value_origins import argument, constant, literal

LAYERS = functions("is a softmax layer")
_WEIGHS = re.compile(r"att|align|energ|point|pool|gate|weigh|alpha", re.IGNORECASE)
_PRODUCTS = operations(numbers="multiplied")
_TURNED = {"T", "mT", *operations(numbers="kept", shape="other turned")}
_COUNTS = re.compile(
    r"unique|\blen\(|\.shape|\.size\(|dim\b|(num|n)_(class|output|label)|\.out_features", re.IGNORECASE
)


class OneOutputAsClasses(SourceCheck):
    """softmax, argmax, the index of a max or cross entropy runs over the classes of a model that has one output.

    Why: a softmax over one number is always 1, an argmax and a cross entropy always 0: every prediction is the same,
    and nothing is learned.

    Bad:
        scorer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        predictions = scorer(x).argmax(1)  # here

    Good:
        scorer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        predictions = (scorer(x) > 0).long().squeeze(1)

    Fix: a sigmoid, or `> 0` on the logit, and binary_cross_entropy_with_logits; or two outputs.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/042/main.py:27;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/042/original_code_snippet.py:20;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/052/main.py:78; mehilshah/Bug_Reproducibility_DL_Bugs
    11b01d62 Bugs/066/main.py:75; 186 repositories: said 2 times, not judged; beds H, P, R: 0 true, 3 false.
    """

    code = "LOSS023"
    words = ("max", "ross_entropy", "rossEntropy")

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report the operation on what can be seen to end in a linear layer with one output."""
        for call in module.all(ast.Call):
            name = module.qualify(call.func) or ""
            if name == "torch.nn.Sequential":
                yield from self._check_sequential_layers(module, call)
            elif (found := _input_axis_and_name(module, call)) is not None:
                yield from self._check_single_output(module, call, *found)
        for call in loss_calls(module, "cross_entropy"):
            logits = argument(call, 0, "input")
            if (
                logits is not None
                and num_outputs(module, logits) == 1
                and not _is_under_count_test(module, call)
            ):
                yield At(call, "The model has one output: this cross entropy is always 0.", RISK)

    def _check_single_output(
        self, module: SourceModule, call: ast.Call, given: ast.expr, dim: ast.expr | None, made: str
    ) -> Iterator[At | Unsure]:
        axis = constant(dim)
        if axis not in (1, -1) or is_softmax_already_named(module, given) or num_outputs(module, given) != 1:
            return
        if axis == 1 and made == "softmax" and _is_attention(module, call):
            yield Unsure(call, "axis 1 may be the steps of a sequence, over which the weights are taken")
            return
        if _is_under_count_test(module, call):
            yield Unsure(call, "a test around it counts classes or outputs")
            return
        always = "0" if made != "softmax" else "1"
        inside = module.enclosing(call, ast.ClassDef) is not None
        unclear = axis == 1 and inside and not _is_input_flattened(module, call)
        text = f"The model has one output: this {made} is always {always}."
        yield At(call, text, RISK if unclear else BUG)

    def _check_sequential_layers(self, module: SourceModule, call: ast.Call) -> Iterator[At | Unsure]:
        for before, layer in zip(call.args, call.args[1:], strict=False):
            if not (isinstance(before, ast.Call) and isinstance(layer, ast.Call)):
                continue
            if module.qualify(layer.func) in LAYERS and _is_linear_with_one_output(module, before):
                over_rows = literal(module, argument(layer, 0, "dim")) == 1
                if over_rows and _is_attention(module, call):
                    yield Unsure(layer, "axis 1 may be the steps of a sequence, over which weights are taken")
                else:
                    yield At(layer, "A softmax over one output is always 1: use nn.Sigmoid().")


def _is_under_count_test(module: SourceModule, call: ast.Call) -> bool:
    """Tell `if len(y.unique()) > 2:` and `if out.shape[1] > 1:` around: of one output another arm is taken."""
    tests = [each.test for each in module.ancestors(call) if isinstance(each, (ast.If, ast.IfExp))]
    compared = [each for test in tests for each in walk(test) if isinstance(each, ast.Compare)]
    return any(_COUNTS.search(ast.unparse(each)) for each in compared)


def _input_axis_and_name(
    module: SourceModule, call: ast.Call
) -> tuple[ast.expr, ast.expr | None, str] | None:
    """Return (its input, its axis, its name) for a softmax or argmax: a function, a method or a layer."""
    name = module.qualify(call.func) or ""
    if name.startswith("torch.nn.") and not name.startswith("torch.nn.functional."):
        return None  # the layer is made here
    last = (name if name.startswith("torch.") else getattr(call.func, "attr", "")).rsplit(".", 1)[-1]
    if last in ("argmax", "softmax", "log_softmax") or (last == "max" and _is_max_index_read(module, call)):
        made = "index of the largest" if last == "max" else last
        free = name.startswith("torch.")
        given = call.args[0] if free and call.args else getattr(call.func, "value", None)
        return None if given is None else (given, argument(call, 1 if free else 0, "dim"), made)
    if isinstance(call.func, ast.Call) and is_softmax(module, call) and call.args:
        return call.args[0], argument(call.func, 0, "dim"), "softmax"
    return None


def _is_max_index_read(module: SourceModule, given: ast.expr) -> bool:
    """Tell whether the second of the two that a maximum gives is read: `[1]`, `.indices`, `_, pred = ...`."""
    match module.parents[given]:
        case ast.Subscript(slice=index):
            return constant(index) in (1, -1)
        case ast.Attribute(attr=name):
            return name == "indices"
        case ast.Assign(targets=[ast.Tuple(elts=[first, second])]):
            return dotted_name(first) == "_" or bool(module.reads(dotted_name(second) or ""))
        case ast.Assign(targets=[ast.Name(id=name)]):
            scope = module.scope(given)
            return any(
                _is_max_index_read(module, each) for each in module.reads(name) if module.scope(each) is scope
            )
    return False


def _is_linear_with_one_output(module: SourceModule, layer: ast.Call) -> bool:
    return (
        module.qualify(layer.func) == "torch.nn.Linear"
        and literal(module, argument(layer, 1, "out_features")) == 1
    )


def _is_input_flattened(module: SourceModule, node: ast.expr) -> bool:
    """Tell whether the function around makes matrices of its input: `x.view(len(x), -1)`, `x.flatten(1)`."""
    function = module.scope(node)
    shapers = [*module.method_calls("view", "reshape"), *module.method_calls("flatten")]
    return any(
        module.scope(each) is function
        and (len(each.args) == 2 or (isinstance(each.func, ast.Attribute) and each.func.attr == "flatten"))
        for each in shapers
    )


def _is_attention(module: SourceModule, node: ast.expr) -> bool:
    """Tell an attention over the steps of a sequence from classes: by what it is called or multiplied with."""
    around = [
        each.name for each in module.ancestors(node) if isinstance(each, (ast.ClassDef, ast.FunctionDef))
    ]
    made = module.parents[node]
    targets = made.targets if isinstance(made, ast.Assign) else []
    named = [ast.unparse(each) for each in targets]
    if any(_WEIGHS.search(text) for text in [*around, *named, ast.unparse(node)]):
        return True
    uses = [node, *(use for name in named for use in module.reads(name))]
    return any(
        _is_multiplied(module, use) for use in walk_each_once(uses, lambda use: _reads_of_result(module, use))
    )


def _reads_of_result(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    """Return where what a layer of that name gives is read, if it is kept under a name."""
    call = module.parents[node]
    kept = module.parents[call] if isinstance(call, ast.Call) and call.func is node else None
    return [*module.reads(ast.unparse(kept.targets[0]))] if isinstance(kept, ast.Assign) else []


def _is_multiplied(module: SourceModule, node: ast.expr) -> bool:
    """Tell whether a value, or what a layer of that name gives, is multiplied with something."""
    outer = module.parents[node]
    if isinstance(outer, ast.Call) and outer.func is node:
        node, outer = outer, module.parents[outer]
    while isinstance(outer, ast.Attribute) and outer.attr in _TURNED:  # `weights.transpose(1, 2)`
        node, outer = outer, module.parents[outer]
        if isinstance(outer, ast.Call) and outer.func is node:
            node, outer = outer, module.parents[outer]
    if isinstance(outer, ast.Attribute):
        return outer.attr in _PRODUCTS
    if isinstance(outer, ast.Call):
        return ast.unparse(outer.func).rsplit(".", 1)[-1] in _PRODUCTS
    return isinstance(outer, ast.BinOp) and isinstance(outer.op, (ast.Mult, ast.MatMult))
