# SPDX-License-Identifier: Apache-2.0
"""What a value was made by, followed back through the batches of a loader: what its collate function gives back."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from truestep.doctor.library.operations import SAME_NUMBERS, operations
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.batch_counts import LOADER, loader_of_loop
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Binding, Class, Function, walk
from truestep.doctor.source.value_origins import argument, constant

_SAME = (SAME_NUMBERS | operations(numbers="whole indices")) - operations(shape="gone")
_FILLS = ("masked_fill_", "masked_scatter_", "index_fill_", "fill_", "copy_")
_COLLATES = ("collate_fn", "data_collator")
_MOST = 200  # steps back
Place = tuple[ast.expr, tuple[object, ...]]  # an expression, and the keys that lead to the value within it


@dataclass
class BatchOrigins:
    """Where a value comes from."""

    made: list[ast.expr] = field(default_factory=list)
    is_whole: bool = True  # every way back was seen, and none picks or fills places by a mask


def batch_origins(module: SourceModule, node: ast.expr) -> BatchOrigins:
    """Return what makes a value, back through names, what keeps the numbers, calls, forwards and batches."""
    found, seen = BatchOrigins(), set[Place]()
    waiting: list[Place] = [(node, ())]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        before = _places_one_step_back(module, *place)
        found.is_whole &= before is not None and len(seen) < _MOST
        if not found.is_whole:
            break
        waiting += before or []
        if before == []:
            found.made.append(place[0])
    return found


def _places_one_step_back(
    module: SourceModule, node: ast.expr, keys: tuple[object, ...]
) -> list[Place] | None:
    """Return the places one step back: none where the value is made here, None where that can't be told."""
    match node:
        case ast.Name():
            return None if _is_written_by_index(module, node) else _origins_of_name(module, node, keys)
        case ast.Subscript():
            return _origins_of_item(module, node, keys)
        case ast.IfExp():
            return [(node.body, keys), (node.orelse, keys)]
        case ast.Attribute() if node.attr == "data" or not module.definitions(node):
            return [(node.value, keys)] if node.attr == "data" else None
        case ast.Attribute():
            return _known_places([(each, keys) for each in module.definitions(node)])
        case ast.Call():
            return _origins_of_call(module, node, keys)
        case ast.DictComp() | ast.ListComp() if keys:
            return _origins_of_comprehension(node, keys)
    return _part_at_key(node, keys) if keys else []


def _known_places(places: list[tuple[ast.expr | None, tuple[object, ...]]]) -> list[Place] | None:
    known = [(each, keys) for each, keys in places if each is not None]
    return known if known and len(known) == len(places) else None


def _part_at_key(node: ast.expr, keys: tuple[object, ...]) -> list[Place] | None:
    """Return what stands at a key of a tuple, list or dict that is written out."""
    key, left = keys[0], keys[1:]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [(value, left) for name, value in pairs if name is not None and constant(name) == key] or None
    if isinstance(node, (ast.Tuple, ast.List)) and isinstance(key, int):
        starred = any(isinstance(each, ast.Starred) for each in node.elts)
        return [(node.elts[key], left)] if not starred and 0 <= key < len(node.elts) else None
    return None


def _origins_of_item(
    module: SourceModule, node: ast.Subscript, keys: tuple[object, ...]
) -> list[Place] | None:
    if defined := module.definitions(node):
        return _known_places([(each, keys) for each in defined])
    key = constant(node.slice)
    if isinstance(key, str):
        return [(node.value, (key, *keys))]
    if isinstance(key, int) and _is_batch_name(module, node.value):
        return [(node.value, (key, *keys))]
    return [(node.value, keys)] if _is_fixed_index(node.slice) else None


def _is_batch_name(module: SourceModule, node: ast.expr) -> bool:
    """Tell a name that nothing in the program gives a value but a loop or a library: there, [0] is a part."""
    return isinstance(node, ast.Name) and module.definitions(node) in ([], [None])


def _is_fixed_index(index: ast.expr) -> bool:
    """Tell `[:, 1:]` from an index by a mask, by a length, or by one after the other."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    bounds = [
        end
        for each in parts
        for end in ((each.lower, each.upper, each.step) if isinstance(each, ast.Slice) else (each,))
    ]
    return all(end is None or isinstance(end, ast.Constant) or constant(end) is not None for end in bounds)


def _origins_of_call(module: SourceModule, node: ast.Call, keys: tuple[object, ...]) -> list[Place] | None:
    function = module.functions.target(node)
    if function is not None:
        results = module.functions.results(function)
        return [(each, keys) for each in results] or None
    if isinstance(node.func, ast.Name) and node.func.id == "dict" and keys:
        return [(word.value, keys[1:]) for word in node.keywords if word.arg == keys[0]] or None
    name = module.qualify(node.func) or ""
    if name.startswith("torch.") and name.count(".") == 1 and name[6:] in _SAME and node.args:
        return [(node.args[0], keys)]
    if not name and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME:
        return [(node.func.value, keys)]
    return None if keys else []


def _origins_of_comprehension(
    node: ast.DictComp | ast.ListComp, keys: tuple[object, ...]
) -> list[Place] | None:
    """Return the batch of `{name: part.to(device) for name, part in batch.items()}`."""
    value = node.value if isinstance(node, ast.DictComp) else node.elt
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME:
        value = value.func.value
    source = node.generators[0].iter
    if isinstance(node, ast.DictComp) and isinstance(source, ast.Call):
        is_items = isinstance(source.func, ast.Attribute) and source.func.attr == "items"
        source = source.func.value if is_items else source  # type: ignore[attr-defined]
    return [(source, keys)] if isinstance(value, ast.Name) and len(node.generators) == 1 else None


def _origins_of_name(module: SourceModule, name: ast.Name, keys: tuple[object, ...]) -> list[Place] | None:
    found: list[Place] = []
    for binding in module.home(name).resolver.reaching(name):
        before = _origins_of_binding(module, binding, name.id, keys)
        if before is None:
            return None
        found += before
    return found or None


def _origins_of_binding(
    module: SourceModule, binding: Binding, name: str, keys: tuple[object, ...]
) -> list[Place] | None:
    function = binding.parameter_of
    if function is not None:
        calls = [*module.functions.callers(function), *_forward_calls(module, function)]
        given = [(argument_for(function, call, name), keys) for call in calls]
        return _known_places(given) if given else _collate_results(module, None, keys)
    if binding.how == "for":
        loop = module.enclosing(binding.node, ast.For)
        place = _position_in_batch(loop, binding.node) if loop is not None else None
        return _collate_results(module, loop, (*place, *keys)) if place is not None else None
    if binding.value is None or binding.how not in ("assign", "unpack"):
        return None
    return [(binding.value, (*binding.position, *keys))]


def _position_in_batch(loop: ast.For, node: ast.AST) -> tuple[int, ...] | None:
    """Return where a variable of a loop stands in a batch; what counts the batches stands before it."""
    target: ast.expr = loop.target
    counted = isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name)
    if counted and loop.iter.func.id == "enumerate" and isinstance(target, ast.Tuple):  # type: ignore[attr-defined]
        target = target.elts[-1]
    if target is node:
        return ()
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
    return next(((index,) for index, each in enumerate(parts) if each is node), None)


def _collate_results(
    module: SourceModule, loop: ast.For | None, keys: tuple[object, ...]
) -> list[Place] | None:
    """Return what the collate function of a loop's loader gives; of any in the program, where that is not in sight."""
    if not keys:
        return None
    loader = loader_of_loop(module, loop) if loop is not None else None
    if loader is not None:
        functions = [module.functions.named(each) for each in _collate_argument(module, loader)]
    else:
        functions = [*module.program.answer(_collate_functions)]
    given = [
        each for function in functions if function is not None for each in module.functions.results(function)
    ]
    return [(each, keys) for each in given] or None


def _collate_functions(files: list[SourceModule]) -> list[Function]:
    """Return the functions of a program that make batches of examples."""
    given = [
        word.value
        for each in files
        for call in each.all(ast.Call)
        for word in call.keywords
        if word.arg in _COLLATES
    ]
    found = [files[0].functions.named(each) for each in given]
    return list(dict.fromkeys(each for each in found if each is not None))


def _collate_argument(module: SourceModule, loader: ast.Call) -> Iterator[ast.expr]:
    at, name = (6, "collate_fn") if module.qualify(loader.func) == LOADER else (None, "collate")
    if (given := argument(loader, at, name)) is not None:
        yield given


def _is_written_by_index(module: SourceModule, name: ast.Name) -> bool:
    """Tell whether places of a tensor are set where it is named so: `labels[labels == pad] = -100`."""
    scope = module.scope(name)
    for node in walk(scope):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            filled, key = node.value, constant(node.slice)
            if isinstance(filled, ast.Name) and filled.id == name.id and not isinstance(key, str):
                return True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS:
            filled = node.func.value
            if isinstance(filled, ast.Name) and filled.id == name.id:
                return True
    return False


def _forward_calls(module: SourceModule, function: Function) -> list[ast.Call]:
    """Return the calls of objects whose forward a function is; none for any other function."""
    owner = module.resolver.index.parents.get(function)
    if getattr(function, "name", "") != "forward" or not isinstance(owner, ast.ClassDef):
        return []
    classes = [owner, *module.classes.subclasses_of(owner)]
    applied = module.program.answer(_object_calls_by_class)
    return [call for each in classes for call in applied.get(each, [])]


def _object_calls_by_class(files: list[SourceModule]) -> dict[Class, list[ast.Call]]:
    """Return the calls of objects of the program's classes, by the class."""
    found: dict[Class, list[ast.Call]] = {}
    for module in files:
        for call in module.all(ast.Call):
            if isinstance(call.func, (ast.Name, ast.Attribute)) and module.qualify(call.func) is None:
                owner = module.classes.of(call.func)
                if owner is not None and module.classes.named(call.func) is None:
                    found.setdefault(owner, []).append(call)
    return found
