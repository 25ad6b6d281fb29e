# SPDX-License-Identifier: Apache-2.0
import ast
import sys
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.origins import files_defining_user_models, format_line_location
from truestep.explainer.run_sentences import running_models
from truestep.explainer.source import crashed_file_nodes_of_type
from truestep.explainer.values import describe_crash_layer, is_tensor_at_crash, raw_tensor_shape


class ValueChangedInPlace(Explainer):
    """A value that backward needs was overwritten before the backward.

    Means: += and methods ending in _ change a tensor; an optimizer's step changes the weights that a graph still needs.

    Raises:
        weights = torch.zeros(3, requires_grad=True)
        gate = weights.sigmoid()
        gate += 1
        gate.sum().backward()

    Works:
        weights = torch.zeros(3, requires_grad=True)
        gate = weights.sigmoid()
        gate = gate + 1
        gate.sum().backward()

    Fix: write x = x + y in place of x += y, relu without inplace=True, and run every backward before any optimizer.step()
    of the weights it needs (a GAN's second loss takes a fresh forward).

    Cases:
        otherwise: `{weight}` {shape_of} was changed after the forward: an optimizer.step() came between forward and
            backward.
            Fix: run all backward() calls first and step afterwards; for a GAN compute the generator's loss anew after the
            discriminator's step, or use fake.detach() for the discriminator.
        otherwise: {what}, was changed by {layers}, which overwrites its input.
            Fix: make that layer without inplace=True.
        `+=`: {what}, was changed at {line}. Fix: write x = x + y there, which makes a new tensor.
        otherwise: {what}, was changed at {line}.
        otherwise: {what}, was changed.
    """

    messages = (
        (
            r"one of the variables needed for gradient computation has been modified by an inplace operation"
            r"(?:: \[(?P<kind>[\w.]+) \[(?P<shape>[\d, ]*)\]\](?:, which is output \d+ of (?P<operation>\w+))?,? is "
            r"at version (?P<version>\d+); "
            r"expected version (?P<expected>\d+))?"
        ),
        r"Output \d+ of \w+ is a view and (?:is being|its base or another view of its base has been) modified inplace",
    )
    checks = ("GRAD023",)
    not_in_a_log = "which line changed it"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        if match.groupdict().get("shape") is None:
            return {}
        shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
        if weight := _weight_stepped_by_optimizer(crash, shape, int(match["version"])):
            return {"weight": weight, "shape_of": str(shape)}
        operation = match["operation"] or ""
        made = f", made by {operation.removesuffix('Backward0')}" if operation else ""
        facts = {"what": f"a value of shape {shape}{made}"}
        behind, others = in_place_layers(crash, operation)
        line = "" if behind else _in_place_line_for_shape(crash, shape)
        if layers := behind or ([] if line else others):
            return {**facts, "layers": " or ".join(layers[:2])}
        return facts | ({"line": line} if line else {})


def _in_place_line_for_shape(crash: Crash, shape: tuple[int, ...]) -> str:
    """Return the line that changes a tensor of this shape in place, if the user's running functions have one."""
    for frame in reversed(crash.frames):
        if not frame.is_users or frame.live is None:
            continue
        names = frame.locals()
        lines = [
            number
            for number, name in in_place_lines_of_file(
                frame.path, frame.live.f_code.co_firstlineno, frame.line
            )
            if name not in names
            or (is_tensor_at_crash(names[name]) and raw_tensor_shape(names[name]) == shape)
        ]
        if lines:
            return format_line_location(frame.path, lines[-1])
    return _in_place_lines_in_model_files(crash)


def _in_place_lines_in_model_files(crash: Crash) -> str:
    """Return the lines of the models' own files that change a value in place."""
    found = [
        format_line_location(path, number)
        for path in files_defining_user_models(crash)
        for number, name in in_place_lines_of_file(path, 0, sys.maxsize)
        if not name.startswith(("self.num", "num", "count", "total", "i", "n"))
    ]
    return " or ".join(found[:2])


def _weight_stepped_by_optimizer(crash: Crash, shape: tuple[int, ...], version: int) -> str:
    """Return the weight that an optimizer stepped, if the shape and the version are one's."""
    shapes = (shape, shape[::-1])  # linear layers save their weight transposed
    for owner, model in running_models(crash):
        for name, parameter in model.named_parameters():
            if raw_tensor_shape(parameter) in shapes and parameter._version == version:
                return f"{owner}.{name}"
    return ""


# these keep what they were given and not what they gave, so that a change of it does no harm
_KEEP_INPUT = ("Linear", "Conv", "BatchNorm", "GroupNorm", "LayerNorm", "InstanceNorm")


def in_place_layers(crash: Crash, operation: str) -> tuple[list[str], list[str]]:
    """Return the layers with inplace=True by their paths: those behind a layer of an operation, and the others.

    Those behind a layer that needs its own output no more, as a linear one, are left out.
    """
    maker = _normalized_name(operation.partition("Backward")[0])
    behind, others = list[str](), list[str]()
    for owner, model in running_models(crash):
        for path, module in model.named_modules():
            before: Any = None
            for name, child in module.named_children():
                if getattr(child, "inplace", False) is True:
                    where = ".".join(part for part in (owner, path, name) if part)
                    shown = f"`{where}` = {describe_crash_layer(child)}"
                    if before is not None and _normalized_name(type(before).__name__) == maker:
                        behind.append(shown)
                    elif before is None or not type(before).__name__.startswith(_KEEP_INPUT):
                        others.append(shown)
                before = child
    return list(dict.fromkeys(behind)), list(dict.fromkeys(others))


def _normalized_name(name: str) -> str:
    return name.lower().replace("_", "")


def in_place_lines_of_file(path: str, first: int, last: int) -> list[tuple[int, str]]:
    """Return the lines that change a tensor in place, with its name: x += y, x[i] = y, x.add_(y)."""
    found = []
    for node in crashed_file_nodes_of_type(path, ast.AST):
        line = getattr(node, "lineno", 0)
        if not first <= line <= last:
            continue
        if isinstance(node, ast.AugAssign):
            found.append((line, ast.unparse(node.target).partition("[")[0]))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            found.append((line, ast.unparse(node.targets[0].value)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            if (
                any(each.arg == "inplace" and ast.unparse(each.value) == "True" for each in node.keywords)
                and node.args
            ):
                found.append((line, ast.unparse(node.args[0])))
            elif (
                method.endswith("_")
                and not method.endswith("__")
                and method not in ("requires_grad_", "retain_grad_")
            ):
                found.append((line, ast.unparse(node.func.value)))
    return sorted(found)
