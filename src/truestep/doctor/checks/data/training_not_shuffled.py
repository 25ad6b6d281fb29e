# SPDX-License-Identifier: Apache-2.0
"""A training loader in the order of the file."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import QUESTION, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.batch_counts import (
    LOADER,
    RUN,
    is_single_batch_loader,
    loader_of_loop,
    loader_tensors,
    num_batches,
    row_sources,
)
from truestep.doctor.source.frames import TOP, CallFrame, LocatedExpression
from truestep.doctor.source.loaders import argument_origin, argument_value, training_loaders
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, last_part, walk
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, set_keyword
from truestep.doctor.source.value_origins import argument, has_star_args, literal, value_origins

TRAINING = re.compile(r"(^|_)train", re.IGNORECASE)
MEASURING = re.compile(r"(^|_)(eval|evaluation|test|val|stats?)(_|$)", re.IGNORECASE)

_DRAWS = re.compile(
    r"(random|numpy\.random|secrets)\.(randint|randrange|choice|choices|sample|permutation|shuffle|randbelow)$"
    r"|torch\.(randint|randperm|multinomial)$"
)

_MIXED_BEFORE = 4  # wrappings and cuts between the rows and the loader

_MEASURES = ("len", "print", "str", "repr", "type")  # what asks about a loader and draws nothing from it


class TrainingNotShuffled(SourceCheck):
    """The training loader does not shuffle.

    Why: batches come in the order of the data set, often sorted by class: worse models, sometimes no
    learning at all.

    Bad:
        train_loader = DataLoader(train_set, batch_size=32)  # here

    Good:
        train_loader = DataLoader(train_set, batch_size=32, shuffle=True)

    Fix: shuffle=True, or a sampler.

    Evidence: THUDM/CogDL 281f4742 examples/graphmae/main_graph.py:140; corpus, 186 repositories, beds A, B, C,
    D, E, F, G, H, I, K, L, M, N, O, P, Q: 32 true, 20 debatable, 35 false.
    """

    code = "DATA001"
    rewrites = "choice"
    words = ("DataLoader", ".data(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loader that is trained on, or is named so, and has neither shuffle nor a sampler."""
        trained = list(training_loaders(module))
        known = {each.node for each in trained}
        named = [
            each
            for each in module.calls(LOADER)
            if each not in known and _is_named_for_training(module, each)
        ]
        named = [
            each for each in named if not _has_backward_in_program(module) or _is_loader_used(module, each)
        ]
        told: set[ast.AST] = set()
        for each in [*trained, *(LocatedExpression(call, TOP) for call in named)]:
            node = _source_of_fixed_order(module, each)
            if node is not None and node not in told:
                told.add(node)
                # the order may be wanted, or random already
                yield At(node, "The training loader yields the data in its own order.", QUESTION)
        for call in dict.fromkeys(_data_calls_of_learners(module)):
            yield At(call, "The training batches come in the data's own order.", QUESTION)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Shuffle."""
        given = argument(node, 2, "shuffle")
        if module.classes.maker_of(node) == RUN and not isinstance(given, ast.Name):
            return [set_keyword(module, node, "shuffle", "True")]
        if (
            module.qualify(node.func) != LOADER
            or len(node.args) > 2
            or not isinstance(given, ast.Constant | None)
        ):
            raise SourceRewriteError
        return [set_keyword(module, node, "shuffle", "True")]


def _has_backward_in_program(module: SourceModule) -> bool:
    """Tell a program from a few lines of one: what these leave unused, the rest may use."""
    return any(file.read_under("backward") for file in module.program.linked)


def _data_calls_of_learners(module: SourceModule) -> Iterator[ast.Call]:
    """Yield the `run.data(...)` whose batches a learner of Truestep's is updated with, in the order of the data."""
    for trace in module.traces:
        for update in trace.of("learn"):
            loop = update.loops()[-1] if update.loops() else None
            source = loader_of_loop(module, loop) if isinstance(loop, ast.For) else None
            if (
                source is not None
                and module.qualify(source.func) != LOADER
                and _is_unshuffled_data_call(module, source)
            ):
                yield source


def _is_unshuffled_data_call(module: SourceModule, source: ast.Call) -> bool:
    """Tell inputs and targets, or a data set, that are not shuffled, weighed or drawn; one tensor may be a sequence."""
    words = {word.arg for word in source.keywords}
    shuffle = argument(source, None, "shuffle")
    if words & {"weights", "by_length", None} or not (shuffle is None or literal(module, shuffle) is False):
        return False
    tensors = loader_tensors(module, source)
    if isinstance(tensors, list):
        return (
            len(tensors) > 1 and num_batches(module, source) != 1 and not _has_random_tensor(module, tensors)
        )
    return tensors is not None and module.kind(tensors) == "dataset"


def _has_random_tensor(module: SourceModule, tensors: list[ast.expr]) -> bool:
    """Tell whether the rows are random already: some tensor is drawn, or taken from one that is."""
    made = [each for tensor in tensors for each in value_origins(module, tensor)]
    drawn = operations(numbers="drawn")
    return any(
        isinstance(each, ast.Call) and (module.qualify(each.func) or "").rpartition(".")[2] in drawn
        for each in made
    )


def _source_of_fixed_order(module: SourceModule, loader: LocatedExpression) -> ast.expr | None:
    """Return what keeps the data in order: a sampler that does not shuffle, or the loader itself."""
    call, context = loader.node, loader.context
    if not isinstance(call, ast.Call) or has_star_args(call) or is_single_batch_loader(module, call):
        return None
    sampler = argument(call, 3, "sampler")
    if sampler is not None or argument(call, 4, "batch_sampler") is not None:
        made = argument_origin(module, sampler, context)
        return made.node if made is not None and _is_sequential_sampler(module, made) else None
    data, shuffle = argument(call, 0, "dataset"), argument(call, 2, "shuffle")
    if data is not None and (
        module.kind(data) == "iterable dataset"
        or any(_is_dataset_ignoring_index(module, each) for each in row_sources(module, data))
        or _is_shuffled_by_method(module, data)
    ):
        return None
    size = argument(call, 1, "batch_size")
    if isinstance(size, ast.Constant) and size.value is None:
        return None  # the data set makes its batches, in whatever order
    return call if shuffle is None or _is_shuffle_false(module, shuffle, context) else None


def _with_definitions(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    return [node, *(value for value in module.definitions(node) if value is not None)]


def _is_dataset_ignoring_index(module: SourceModule, data: ast.expr) -> bool:
    """Tell a data set that does not read the index it is asked for, or whether it is even and draws: any order is its own."""
    owner = module.classes.of(data)
    method = module.classes.method(owner, "__getitem__")
    return method is not None and _ignores_index(module, method)


def _ignores_index(module: SourceModule, method: Function) -> bool:
    """Tell a method that does not read the index it is asked for, or whether it is even and draws."""
    asked = method.args.args[1].arg if len(method.args.args) == 2 else None
    if asked is None:
        return False
    read = [each for each in walk(method) if isinstance(each, ast.Name) and each.id == asked]
    return not read or (
        _draws_random_rows(module, method) and all(_is_parity_of_index(module, each) for each in read)
    )


def _draws_random_rows(module: SourceModule, method: Function) -> bool:
    """Tell a method that draws which rows it gives: by Python's, numpy's or torch's random numbers."""
    home = module.home(method)
    names = [home.qualify(each.func) or "" for each in walk(method) if isinstance(each, ast.Call)]
    return any(_DRAWS.match(each) for each in names)


def _is_parity_of_index(module: SourceModule, index: ast.Name) -> bool:
    """Tell `index % 2` and `index & 1`: which kind of pair is asked for, not which rows."""
    match module.home(index).parents[index]:
        case ast.BinOp(left=left, op=ast.Mod(), right=ast.Constant(2)):
            return left is index
        case ast.BinOp(left=left, op=ast.BitAnd(), right=ast.Constant(1)):
            return left is index
    return False


def _is_shuffled_by_method(module: SourceModule, data: ast.expr) -> bool:
    """Tell `stream.shuffle(buffer_size=1000).with_format("torch")`, under a name or where it is written."""

    def receivers(each: ast.expr) -> list[ast.expr]:
        forms = _with_definitions(module, each)
        return [
            form.func.value
            for form in forms
            if isinstance(form, ast.Call) and isinstance(form.func, ast.Attribute)
        ]

    reached = walk_each_once([data], receivers, _MIXED_BEFORE)
    forms = [form for each in reached for form in _with_definitions(module, each)]
    return any(
        isinstance(form, ast.Call) and isinstance(form.func, ast.Attribute) and form.func.attr == "shuffle"
        for form in forms
    )


def _is_sequential_sampler(module: SourceModule, sampler: LocatedExpression) -> bool:
    """Tell `SequentialSampler(data)`, and `DistributedSampler(data, shuffle=False)`."""
    call = sampler.node
    name = (module.qualify(call.func) or "") if isinstance(call, ast.Call) else ""
    if not isinstance(call, ast.Call) or not name.startswith("torch.utils.data."):
        return False
    shuffle = argument(call, 3, "shuffle")
    distributed = name.endswith(".DistributedSampler") and shuffle is not None
    return name.endswith(".SequentialSampler") or (
        distributed and _is_shuffle_false(module, shuffle, sampler.context)
    )


def _is_shuffle_false(module: SourceModule, shuffle: ast.expr | None, context: CallFrame) -> bool:
    return literal(module, shuffle) is False or argument_value(module, shuffle, context) is False


def _is_named_for_training(module: SourceModule, call: ast.Call) -> bool:
    return any(TRAINING.search(name) and not MEASURING.search(name) for name in _loader_names(module, call))


def _loader_names(module: SourceModule, call: ast.Call) -> list[str]:
    """Return the names that a loader gets, itself or in a wrapper: not those of an object that takes it among others."""
    value: ast.AST = call
    above = module.parents[value]
    while isinstance(above, ast.Call) and above.args == [value] and not above.keywords:
        value, above = above, module.parents[above]
    if not isinstance(above, ast.Assign):
        return []
    return [last_part(each) for each in above.targets]


def _is_loader_used(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether a loader's name is read for more than its length; also where it has none."""
    names = _loader_names(module, call)
    reads = [
        (file, each) for name in names for file in module.program.linked for each in file.read_under(name)
    ]
    return not names or any(not _is_only_length_read(file, each) for file, each in reads)


def _is_only_length_read(file: SourceModule, read: ast.expr) -> bool:
    """Tell `len(loader)`, and a part of a result that every caller calls `_`."""
    match above := file.parents[read]:
        case ast.Call():
            return dotted_name(above.func) in _MEASURES
        case ast.Tuple() if isinstance(file.parents[above], ast.Return):
            place, function = above.elts.index(read), file.scope(read)
            calls = file.functions.callers(function) if isinstance(function, Function) else []
            targets = [
                each for call in calls for each in getattr(file.home(call).statement(call), "targets", ())
            ]
            parts = [each.elts[place : place + 1] for each in targets if isinstance(each, ast.Tuple)]
            return bool(parts) and all(dotted_name(each) == "_" for part in parts for each in part)
    return False
