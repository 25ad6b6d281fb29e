# SPDX-License-Identifier: Apache-2.0
"""Says of a value what may be said: type, shape, dtype, device; never its contents, never a string.

No code of the user's runs here: attributes are looked up where they are stored, not asked for.
"""

import ast
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from truestep.core.state_trees import own_attributes

_HIDDEN = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


@dataclass(frozen=True)
class ValueOnLine:
    """A value with the words by which the user's line calls it."""

    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.name}: {describe_crash_value(self.value)}"


def torch_if_imported() -> Any:
    """Return torch if the program imported it; it is never imported for this."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "Tensor") else None


def is_tensor_at_crash(value: Any) -> bool:
    """Whether it is a tensor; decided by its type, so that no proxy's code runs."""
    torch = torch_if_imported()
    return torch is not None and issubclass(type(value), torch.Tensor)


def is_layer_at_crash(value: Any) -> bool:
    """Whether it is an nn.Module."""
    torch = torch_if_imported()
    return torch is not None and issubclass(type(value), torch.nn.Module)


def raw_tensor_shape(tensor: Any) -> tuple[int, ...]:
    """Return a tensor's shape, whatever a subclass makes of `.shape`."""
    with _disable_torch_function():
        return tuple(int(size) for size in tensor.shape)


def tensor_dtype_name(tensor: Any) -> str:
    """Return a tensor's dtype as people write it: float32."""
    with _disable_torch_function():
        return str(tensor.dtype).removeprefix("torch.")


def _disable_torch_function() -> Any:
    """Read tensors without the __torch_function__ of their classes."""
    return torch_if_imported()._C.DisableTorchFunctionSubclass()


def format_tensor_shape(tensor: Any) -> str:
    """Write a tensor's shape as a tuple."""
    return format_shape_tuple(raw_tensor_shape(tensor))


def format_tensor_dtype_and_shape(tensor: Any) -> str:
    """Write a tensor's dtype and shape: float32 (4, 3)."""
    return f"{tensor_dtype_name(tensor)} {format_tensor_shape(tensor)}"


def describe_crash_value(value: Any) -> str:
    """Say what a value is."""
    if value is None:
        return "None"
    if is_tensor_at_crash(value):
        with _disable_torch_function():
            grad = ", requires grad" if value.requires_grad else ""
            return f"{format_tensor_dtype_and_shape(value)} on {value.device}{grad}"
    if is_layer_at_crash(value):
        return describe_crash_layer(value)
    if type(value) in (list, tuple, dict, set):  # isinstance would ask the value for its __class__
        return _describe_container(value)
    if type(value).__module__ == "numpy" and hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"NumPy {value.dtype} {format_shape_tuple(tuple(value.shape))}"
    return type(value).__name__


def describe_crash_layer(layer: Any) -> str:
    """Name a layer with its sizes; the words of classes that are not torch's are their own, and left out."""
    kind = type(layer).__name__
    if not type(layer).__module__.startswith("torch.nn.modules"):
        return kind
    extra = layer.extra_repr()
    return f"{kind}({extra})" if extra and "\n" not in extra and len(extra) < 80 else kind


def format_shape_tuple(shape: tuple[int, ...]) -> str:
    """Write a shape as a tuple."""
    return str(tuple(shape))


def _describe_container(value: Any) -> str:
    first = list(islice(value.values() if type(value) is dict else value, 50))
    kinds = list(
        dict.fromkeys(describe_crash_value(item) for item in first if not issubclass(type(item), list | dict))
    )
    shown = "; ".join(kinds[:2]) + (", ..." if len(kinds) > 2 else "")
    return f"{type(value).__name__} of {len(value)}" + (f" ({shown})" if shown else "")


def values_in_failing_expression(
    expression: ast.AST, names: Mapping[str, Any], more: Mapping[str, Any] | None = None
) -> Iterator[ValueOnLine]:
    """Yield the values that an expression names, each once, in the order of writing."""
    seen: set[str] = set()
    kinds = (ast.Name, ast.Attribute, ast.Subscript)
    written = [node for node in ast.walk(expression) if isinstance(node, kinds)]
    written = [
        each
        for each in written
        if not isinstance(each, ast.Subscript) or _is_tensor_subscript(each, names, more or {})
    ]
    inner = {id(node.value) for node in written if isinstance(node, ast.Attribute | ast.Subscript)}
    for node in sorted(written, key=lambda each: (each.lineno, each.col_offset)):
        if id(node) in inner and not isinstance(node, ast.Name):
            continue
        name, found, value = _resolve_expression(node, names, more or {})
        if id(node) in inner and (not found or is_layer_at_crash(value) or not is_tensor_at_crash(value)):
            continue
        if found and name not in seen and not issubclass(type(value), _HIDDEN):
            seen.add(name)
            yield ValueOnLine(name, value)


def _resolve_expression(
    node: ast.AST, names: Mapping[str, Any], more: Mapping[str, Any]
) -> tuple[str, bool, Any]:
    if isinstance(node, ast.Name):
        if node.id in names:
            return node.id, True, names[node.id]
        return node.id, node.id in more, more.get(node.id)
    if isinstance(node, ast.Attribute):
        name, found, owner = _resolve_expression(node.value, names, more)
        if found:
            found, value = static_attribute_lookup(owner, node.attr)
            return f"{name}.{node.attr}", found, value
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        name, found, owner = _resolve_expression(node.value, names, more)
        key = node.slice.value
        # of Python's own types alone, whose members are had without code of the user's
        if found and type(owner) is dict and key in owner:
            return f"{name}[{key!r}]", True, owner[key]
        if (
            found
            and type(owner) in (list, tuple)
            and isinstance(key, int)
            and -len(owner) <= key < len(owner)
        ):
            return f"{name}[{key}]", True, owner[key]
    return "", False, None


def _is_tensor_subscript(node: ast.Subscript, names: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    """Whether this takes a tensor out of a dict, list or tuple by what is written, as `batch["labels"]` does."""
    _, found, value = _resolve_expression(node, names, more)
    return found and is_tensor_at_crash(value)


def static_attribute_lookup(owner: Any, name: str) -> tuple[bool, Any]:
    """Look an attribute up where it is stored, so that no property or __getattr__ runs."""
    stored = own_attributes(owner)
    if name in stored:
        return True, stored[name]
    if is_layer_at_crash(owner):
        for part in ("_modules", "_parameters", "_buffers"):
            if name in stored.get(part, {}):
                return True, stored[part][name]
    return False, None
