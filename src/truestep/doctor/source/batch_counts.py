# SPDX-License-Identifier: Apache-2.0
"""What the batches of a loop are cut from, and how many there are, where the data are tensors in sight."""

import ast
from collections.abc import Iterator

from truestep.doctor.library.functions import functions
from truestep.doctor.library.operations import operations
from truestep.doctor.source.integer_values import whole_number
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, last_part, method_of
from truestep.doctor.source.value_origins import (
    argument,
    constant,
    has_star_args,
    literal,
    resolve_expression,
    value_sources,
)

RUN = "truestep.Run"
LOADER = "torch.utils.data.DataLoader"
_DATASET = "torch.utils.data.TensorDataset"
_BARE = (*functions("hands on what it is given"), "batches")
_MAKERS = operations(shape="sized")
_SIZE_AT = {"randint": 2, "full": 0}
_ROWS_STAY = operations(shape="same") | {"unsqueeze"}
_WRAPPERS = tuple(
    f"torch.utils.data.{each}" for each in ("Subset", "ConcatDataset", "ChainDataset", "random_split")
)
# Libraries whose data sets give the row of the index that they are asked for.


def loader_of_loop(module: SourceModule, loop: ast.For | ast.AsyncFor) -> ast.Call | None:
    """Return `DataLoader(...)` or `run.data(...)` if a loop goes through one, be it through enumerate or a progress bar."""
    made = resolve_expression(module, loop.iter)
    while isinstance(made, ast.Call) and made.args and _called_name(module, made) in _BARE:
        made = resolve_expression(module, made.args[0])
    return made if isinstance(made, ast.Call) and _data_argument(module, made) is not None else None


def _called_name(module: SourceModule, call: ast.Call) -> str:
    return module.qualify(call.func) or method_of(call)


def _data_argument(module: SourceModule, source: ast.Call) -> ast.expr | None:
    name = _called_name(module, source)
    if name == LOADER:
        return argument(source, 0, "dataset")
    return argument(source, 0, "data") if name == "data" and module.classes.maker_of(source) == RUN else None


def _batch_size_argument(module: SourceModule, source: ast.Call) -> ast.expr | None:
    return argument(source, 1 if _called_name(module, source) == LOADER else None, "batch_size")


def loader_tensors(module: SourceModule, source: ast.Call) -> list[ast.expr] | ast.expr | None:
    """Return the tensors whose rows a loader gives together, or the one whose rows it gives alone."""
    data = resolve_expression(module, _data_argument(module, source))
    if isinstance(data, ast.Call) and module.qualify(data.func) == _DATASET:
        return None if any(isinstance(each, ast.Starred) for each in data.args) else list(data.args)
    if isinstance(data, ast.Tuple):
        return list(data.elts)
    return data


def num_batches(module: SourceModule, source: ast.Call) -> int | None:
    """Return how many batches a loader gives, where its data and its batch size are in sight."""
    tensors = loader_tensors(module, source)
    first = tensors[0] if isinstance(tensors, list) and tensors else tensors
    rows = num_rows(module, first) if isinstance(first, ast.expr) else None
    given = _batch_size_argument(module, source)
    size = whole_number(module, given) if given is not None else 1
    others = [word.arg for word in source.keywords if word.arg in ("sampler", "batch_sampler", None)]
    if rows is None or not size or others:
        return None
    drops = literal(module, argument(source, 8, "drop_last")) is True
    return rows // size if drops else -(-rows // size)


def is_single_batch_loader(module: SourceModule, source: ast.Call) -> bool:
    """Tell a loader that gives all its data at once: its order is none, and nothing is left over."""
    size = resolve_expression(module, _batch_size_argument(module, source))
    data = argument(source, 0, "dataset")
    if data is not None and isinstance(size, ast.Call) and module.qualify(size.func) == "len" and size.args:
        return ast.unparse(size.args[0]) == ast.unparse(data)
    return num_batches(module, source) == 1


def has_single_row_batches(module: SourceModule, source: ast.Call) -> bool:
    """Tell a loader whose batches hold one row each, as they do where nothing else is said."""
    given = _batch_size_argument(module, source)
    return not has_star_args(source) and (given is None or literal(module, given) == 1)


def num_rows(module: SourceModule, tensor: ast.expr | None) -> int | None:
    """Return the length of a tensor's first axis, or of a list, by what makes it."""
    made = resolve_expression(module, tensor)
    if isinstance(made, (ast.List, ast.Tuple)):
        return None if any(isinstance(each, ast.Starred) for each in made.elts) else len(made.elts)
    if not isinstance(made, ast.Call):
        return None
    sizes = sizes_written_in_call(module, made)
    if sizes:
        return whole_number(module, sizes[0])
    name = module.qualify(made.func) or ""
    if name in ("range", "torch.arange"):
        return whole_number(module, made.args[0]) if len(made.args) == 1 else None
    stays = isinstance(made.func, ast.Attribute) and made.func.attr in _ROWS_STAY and not name
    first = constant(made.args[0]) if made.args and stays else None
    return num_rows(module, made.func.value) if stays and first != 0 else None  # type: ignore[attr-defined]


def row_sources(module: SourceModule, data: ast.expr) -> Iterator[ast.expr]:
    """Yield what a loader's rows are read from, and what lies behind: names, functions, what only cuts, joins or wraps."""
    return walk_each_once([data], lambda node: _unwrap_once(module, node))


def _unwrap_once(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [node.left, node.right]
    if not isinstance(node, ast.Call):
        return [each for each, _ in value_sources(module, node) if each is not None and each is not node]
    if module.qualify(node.func) in _WRAPPERS:
        inner = resolve_expression(module, node.args[0] if node.args else argument(node, None, "dataset"))
        return (
            inner.elts if isinstance(inner, (ast.List, ast.Tuple)) else [inner] if inner is not None else []
        )
    if (owner := module.classes.of(node)) is not None and module.classes.named(node.func) is owner:
        return _objects_read_by_index(module, owner)
    return module.functions.results(module.functions.target(node))


def _objects_read_by_index(module: SourceModule, owner: Class) -> list[ast.expr]:
    """Return the objects that an object hands the index on to: `self.rows[i]`; what functions give are tables, as a rule."""
    method = module.classes.method(owner, "__getitem__")
    asked = method.args.args[1].arg if method is not None and len(method.args.args) == 2 else None
    items = module.inside(method, ast.Subscript) if method is not None else []
    kept = [
        each.value
        for each in items
        if isinstance(each.value, ast.Attribute)
        and isinstance(each.slice, ast.Name)
        and each.slice.id == asked
    ]
    made = [each for held in kept for each, _ in value_sources(module, held)]
    return [each for each in made if isinstance(each, ast.Call) and last_part(each.func)[:1].isupper()]


def sizes_written_in_call(module: SourceModule, call: ast.Call) -> list[ast.expr] | None:
    """Return the sizes that are written in `torch.randn(8, 1)` or `torch.zeros((8, 1))`."""
    name = module.qualify(call.func) or ""
    maker = name.rsplit(".", 1)[-1]
    if not name.startswith("torch.") or maker not in _MAKERS:
        return None
    given = argument(call, _SIZE_AT.get(maker), "size")
    sizes = [given] if given is not None else list(call.args)
    if len(sizes) == 1:
        only = resolve_expression(module, sizes[0])
        if isinstance(only, (ast.Tuple, ast.List)):
            sizes = list(only.elts)
        elif maker in _SIZE_AT or whole_number(module, only) is None:
            return None  # a size, or a name that may be a whole shape
    return None if any(isinstance(each, ast.Starred) for each in sizes) else sizes
