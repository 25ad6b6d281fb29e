# SPDX-License-Identifier: Apache-2.0
"""Where a model is evaluated, and whether its mode matters."""

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from truestep.doctor.library.layers import BATCH_NORMALISED, DROPPING_LAYERS
from truestep.doctor.library.operations import operations
from truestep.doctor.source.events import Trace, TraceEvent, TrainingLoop
from truestep.doctor.source.frames import UnknownValue
from truestep.doctor.source.loss_modules import is_no_grad_manager
from truestep.doctor.source.memoized_walk import asked_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, given_to, is_self, last_part, walk
from truestep.doctor.source.options import option_defaults
from truestep.doctor.source.untaken_branches import SettledValues, is_taken
from truestep.doctor.source.value_origins import (
    argument,
    calls_behind,
    constant,
    has_star_args,
    is_call_of,
    literal,
    value_origins,
)

_EVALUATES = re.compile(
    r"(^|_)(eval|evaluate|validate|validation|val|test|predict|inference)(_|$)", re.IGNORECASE
)
_PARAMETERS = ("parameters", "named_parameters")
_TENSORS = operations(shape="sized counted") | frozenset(("Parameter", "Variable", "tensor", "from_numpy"))
_SAME_TENSOR = frozenset(
    ("requires_grad_", "to", "cuda", "cpu", "clone", "detach", "float", "double", "half")
)
_SENSITIVE = re.compile(r"(Dropout|BatchNorm|AlphaDropout|SyncBatchNorm)")
Layers = dict[str, bool]  # kinds of layers, and whether a model has them surely


def _is_grad_off(module: SourceModule, event: TraceEvent) -> bool:
    blocks = [frame.node for frame in event.path if isinstance(frame.node, ast.With)]
    functions = [*_functions_around(module, event), module.enclosing(event.node, ast.FunctionDef)]
    decorators = [each for function in functions for each in getattr(function, "decorator_list", [])]
    managers = [item.context_expr for block in blocks for item in block.items]
    return any(is_no_grad_manager(each) for each in [*managers, *decorators])


def _functions_around(module: SourceModule, event: TraceEvent) -> list[Function | None]:
    """Return the functions that the calls around an event run."""
    return [module.functions.target(frame.node) for frame in event.path if isinstance(frame.node, ast.Call)]


class TrainedModels:
    """The models that loops apply, and those whose parameters the optimizers hold that are stepped there.

    A loss that is a method, a partial or an object applies the model under another name; the optimizer was given it itself.
    """

    def __init__(self, module: SourceModule, loops: list[TrainingLoop]) -> None:
        self.module, self.loops = module, loops
        self.subjects = {event.subject for loop in loops for event in loop.of("forward")}

    def __contains__(self, forward: TraceEvent) -> bool:
        if forward.subject in self.subjects:
            return not self._are_all_tensors
        return forward.receiver is not None and not self._optimized_modules.isdisjoint(
            self._origin_calls(forward.receiver)
        )

    @cached_property
    def _stepped_optimizers(self) -> list[ast.expr | None]:
        receivers = [step.receiver for loop in self.loops for step in loop.steps]
        made = [value_origins(self.module, each) if each is not None else [None] for each in receivers]
        return [each for values in made for each in values]

    @cached_property
    def _are_all_tensors(self) -> bool:
        """Whether all that the optimizers hold are tensors which are made by themselves: no model is trained."""
        given = [
            argument(each, 0, "params") if isinstance(each, ast.Call) else None
            for each in self._stepped_optimizers
        ]
        return bool(given) and all(
            each is not None and (_are_plain_tensors(self.module, each) or self._are_model_inputs(each))
            for each in given
        )

    def _are_model_inputs(self, held: ast.expr) -> bool:
        """Tell `[image]` of an optimizer whose loop applies the model to `image`, as an attack does."""
        parts = held.elts if isinstance(held, (ast.List, ast.Tuple)) else []
        applied = [event.node for loop in self.loops for event in loop.of("forward")]
        inputs = {
            dotted_name(each) for call in applied if isinstance(call, ast.Call) for each in given_to(call)
        }
        return bool(parts) and all(isinstance(each, ast.Name) and each.id in inputs for each in parts)

    @cached_property
    def _optimized_modules(self) -> set[ast.expr]:
        inside = [
            each for made in self._stepped_optimizers if isinstance(made, ast.Call) for each in walk(made)
        ]
        asked = [each for each in inside if isinstance(each, ast.Attribute) and each.attr in _PARAMETERS]
        return {origin for each in asked for origin in self._origin_calls(each.value)}

    def _origin_calls(self, node: ast.expr) -> set[ast.expr]:
        return {each for each in value_origins(self.module, node) if isinstance(each, ast.Call)}


@asked_once(False)
def _are_plain_tensors(module: SourceModule, held: ast.expr, depth: int = 0) -> bool:
    """Tell `[patch]`, where `patch = torch.rand(...)`, and groups of such."""
    match held:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return bool(parts) and all(_are_plain_tensors(module, each, depth + 1) for each in parts)
        case ast.Dict(keys=keys, values=values):
            groups = [value for key, value in zip(keys, values, strict=True) if constant(key) == "params"]
            return bool(groups) and all(_are_plain_tensors(module, each, depth + 1) for each in groups)
        case ast.Call(func=ast.Attribute(value=receiver, attr=method)) if method in _SAME_TENSOR:
            return _are_plain_tensors(module, receiver, depth + 1)
        case ast.Call():
            name = module.qualify(held.func) or ""
            return name.startswith("torch.") and name.rpartition(".")[2] in _TENSORS
    made = list(value_origins(module, held)) if isinstance(held, (ast.Name, ast.Attribute)) else []
    return bool(made) and all(
        each is not None and each is not held and _are_plain_tensors(module, each, depth + 1) for each in made
    )


def evaluations_of(module: SourceModule, trace: Trace) -> Iterator[TraceEvent]:
    """Yield the forwards over held-out data from which nothing goes backward, in a trace that trains.

    Under no_grad() after the training loop, whatever the data are called, it is an evaluation too. Layers that a
    module's own forward applies are not told apart from it: they have its mode.
    """
    applied = {event.node for event in trace.of("forward")}
    loops = trace.learning_loops()
    trained = TrainedModels(module, loops)
    last = max((trace.events.index(step) for loop in loops for step in loop.steps), default=-1)
    for forward in trace.of("forward"):
        within = any(frame.node in applied for frame in forward.path if frame.kind == "call")
        if within or forward not in trained or is_look_at_fresh_network(module, trace, forward):
            continue
        off = _is_grad_off(module, forward)
        quiet = off or _has_no_backward(trace, forward)
        apart = not any(forward.inside(loop.path) for loop in loops)
        after = off and apart and trace.events.index(forward) > last
        if (
            (_is_applied_to_held_out(forward) and not _is_trained_forward(module, trace, forward))
            or (quiet and _is_among_held_out(module, forward))
            or after
        ):
            yield forward


def is_look_at_fresh_network(module: SourceModule, trace: Trace, forward: TraceEvent) -> bool:
    """Tell one batch for a network that was just made, before anything trains: a look at its shapes evaluates nothing."""
    before = trace.events[: trace.events.index(forward)]
    if forward.loop_path() or forward.receiver is None or any(each.kind == "step" for each in before):
        return False
    owner = module.classes.of(forward.receiver)
    loads = [
        each.func for each in module.method_calls("load_state_dict") if each.lineno < forward.node.lineno
    ]
    loaded = {dotted_name(each.value) for each in loads if isinstance(each, ast.Attribute)}
    return owner is not None and dotted_name(forward.receiver) not in loaded


def is_held_out_evaluation(module: SourceModule, trace: Trace, forward: TraceEvent) -> bool:
    """Tell an evaluation whose data are called so from what merely comes after training, as pictures to look at."""
    return (
        _is_applied_to_held_out(forward) and not _is_trained_forward(module, trace, forward)
    ) or _is_among_held_out(module, forward)


def _has_no_backward(trace: Trace, forward: TraceEvent) -> bool:
    """Outside of any loop: nothing goes backward later; inside of one: nothing in it does."""
    path = forward.loop_path()
    events = trace.within(path, "backward", "grad", "unknown") if path else trace.events
    later = events if path else events[events.index(forward) :]
    return not any(event.kind in ("backward", "grad") for event in later)


def is_generator(module: SourceModule, trace: Trace, forward: TraceEvent) -> bool:
    """Tell a network whose outputs another one, with an optimizer of its own, judges in training: a GAN's generator."""
    loops = trace.learning_loops()
    if len({step.subject for loop in loops for step in loop.steps}) < 2:
        return False
    applied = [event for loop in loops for event in loop.of("forward")]
    mine = [event.node for event in applied if event.subject == forward.subject]
    others = [event.node for event in applied if event.subject != forward.subject]
    judged = [part for each in others if isinstance(each, ast.Call) for part in given_to(each)]
    return any(call in mine for each in judged for call in calls_behind(module, each))


def _is_trained_forward(module: SourceModule, trace: Trace, forward: TraceEvent) -> bool:
    """Tell whether a loss that goes backward is computed from this forward: then its data are trained on, whatever their name."""
    losses = [each.receiver for each in trace.of("backward") if each.receiver is not None]
    mine = [each for each in losses if module.scope(each) is module.scope(forward.node)]
    return any(forward.node is call for each in mine for call in calls_behind(module, each))


def _is_applied_to_held_out(forward: TraceEvent) -> bool:
    """Tell by the names of what the model is applied to."""
    given = forward.node.args if isinstance(forward.node, ast.Call) else []
    return any(_EVALUATES.search(word) for each in given for word in re.findall(r"\w+", ast.unparse(each)))


def _is_among_held_out(module: SourceModule, forward: TraceEvent) -> bool:
    """Tell by the names of the loop's source and of the functions around it."""
    texts = [ast.unparse(frame.node.iter) for frame in forward.path if isinstance(frame.node, ast.For)]
    texts += [getattr(each, "name", "") for each in _functions_around(module, forward)]
    words = [word for text in texts for word in re.findall(r"\w+", text)]
    return any(_EVALUATES.search(word) for word in words)


def sensitive_layers(module: SourceModule, model: ast.expr, applied: ast.AST | None = None) -> Layers | None:
    """Return the kinds of layers in a model that act differently in training; None if it can't be seen.

    Of each it is said whether the model has it surely: not where an option that can't be seen decides. A layer that
    the call `applied` leaves out is none.
    """
    calls = [applied] if isinstance(applied, ast.Call) else []
    owner = module.classes.of(model)
    if owner is not None:
        return (
            _layers_of_class(module, owner, [*_maker_call(module, model, owner), *calls])
            if _has_plain_bases(module, owner)
            else None
        )
    # what was loaded in place of a model is most often that model
    values = [each for each in value_origins(module, model) if not is_call_of(module, each, "torch.load")]
    each_of = [_layers_of_value(module, each) for each in values]
    if not values or None in each_of:
        return None
    found: Layers = {}
    surely = all(any((each or {}).values()) for each in each_of)
    for each in each_of:
        _add_layer_kinds(found, each or {}, surely=surely)
    return found


def _layers_of_value(module: SourceModule, value: ast.expr | None) -> Layers | None:
    """Return the kinds in what a call makes: a class of the program, a copy, or layers of torch."""
    if not isinstance(value, ast.Call):
        return None
    if (inner := module.classes.handled(value)) is not None and (
        within := sensitive_layers(module, inner)
    ) is not None:
        return within
    if module.qualify(value.func) == "copy.deepcopy" and value.args:
        return sensitive_layers(module, value.args[0])
    if (owner := module.classes.named(value.func)) is not None:
        return _layers_of_class(module, owner, [value]) if _has_plain_bases(module, owner) else None
    if _normalises_batches(module, value):
        return {"BatchNorm": True}
    results = module.functions.results(module.functions.target(value))
    if len(results) == 1:
        return sensitive_layers(module.home(results[0]), results[0])
    if not (module.qualify(value.func) or "").startswith("torch.nn."):
        return None
    found = _layers_in(module, value, [], set())
    for part in value.args:
        within = sensitive_layers(module, part) if isinstance(part, ast.Name) else {}
        if within is None:
            return None
        _add_layer_kinds(found, within)
    return found


def _has_plain_bases(module: SourceModule, owner: ast.ClassDef) -> bool:
    """Tell a class whose bases are the program's own, or nn.Module."""
    return not module.classes.bases_out_of_sight(owner) - {"torch.nn.Module"}


def _add_layer_kinds(found: Layers, more: Layers, *, surely: bool = True) -> None:
    for kind, sure in more.items():
        found[kind] = found.get(kind, False) or (sure and surely)


def _maker_call(module: SourceModule, model: ast.expr, owner: ast.ClassDef) -> list[ast.Call]:
    """Return the one call of its class that made a model, if it can be seen."""
    calls = [each for each in value_origins(module, model) if isinstance(each, ast.Call)]
    return calls if len(calls) == 1 and module.classes.named(calls[0].func) is owner else []


def _layers_of_class(module: SourceModule, owner: ast.ClassDef, calls: list[ast.Call]) -> Layers:
    """Return the kinds that a class or its bases make."""
    found: Layers = {}
    for each in module.classes.lineage(owner):
        _add_layer_kinds(found, _layers_in(module, each, calls, set()))
    return found


def _drops_in_training(call: ast.Call, name: str, values: SettledValues) -> bool:
    """Tell `F.dropout(x, training=self.training)`."""
    modes = [ast.unparse(word.value) for word in call.keywords if word.arg == "training"]
    is_dropout = "functional" in name and "dropout" in name and modes == ["self.training"]
    return is_dropout and values.of(argument(call, 1, "p")) != 0


def _drops_by_option(module: SourceModule, call: ast.Call, name: str, values: SettledValues) -> bool:
    """Tell a layer of several parts that has dropout within; a rate that can't be seen is taken to be one."""
    layer = DROPPING_LAYERS.get(name)
    if layer is None:
        return False
    rate = argument(call, layer.at, layer.option)
    if rate is None:
        return layer.default > 0 and not has_star_args(call)
    if layer.several is not None:
        number = argument(call, *layer.several)
        if number is None or literal(module, number) == 1:
            return False
    return bool(values.of(rate) != 0)


def _has_certain_dropout(module: SourceModule, call: ast.Call, name: str, values: SettledValues) -> bool:
    """Tell whether what a layer drops, if it does, is known: not by an option that nobody in sight sets above 0."""
    layer = DROPPING_LAYERS.get(name)
    at, option = (layer.at, layer.option) if layer is not None else (1 if "functional" in name else 0, "p")
    rate = argument(call, at, option) if layer is not None or "dropout" in name.lower() else None
    if rate is None or not isinstance(values.of(rate), UnknownValue):
        return True
    defaults = module.program.answer(option_defaults)
    origins = list(value_origins(module, rate))
    return (
        bool(origins)
        and all(bool(constant(each) or defaults.get(last_part(each))) for each in origins if each is not None)
        and None not in origins
    )


def _attributes_with_use(
    module: SourceModule, node: ast.AST, values: SettledValues
) -> dict[ast.AST, bool | None]:
    """Return of what makes an attribute of a class whether it is applied: `self.norm = nn.BatchNorm1d(3)`."""
    found: dict[ast.AST, bool | None] = {}
    for statement in module.inside(node, ast.Assign) if isinstance(node, ast.ClassDef) else []:
        target = statement.targets[0]
        if isinstance(target, ast.Attribute):
            reads = module.program.attributes_read.get(target.attr, ())
            reads = [each for each in reads if not _is_of_unrelated_class(module, each, node)]
            taken = {is_taken(module, each, values) for each in reads}
            is_used = True if True in taken else None if None in taken else False
            found |= dict.fromkeys(walk(statement), is_used)
    return found


def _is_of_unrelated_class(module: SourceModule, read: ast.expr, owner: ast.AST) -> bool:
    """Tell `self.drop` in a class that has nothing to do with this one, and a setting: `args.drop`, which nothing calls."""
    if not isinstance(owner, ast.ClassDef) or not isinstance(read, ast.Attribute):
        return False
    home = module.home(read).enclosing(read, ast.ClassDef)
    if is_self(read.value) and home is not None:
        return owner not in module.classes.lineage(home) and home not in module.classes.lineage(owner)
    outer = module.parents.get(read)
    applied = isinstance(outer, ast.Call) and outer.func is read
    return not applied and module.classes.of(read.value) is None and not is_self(read.value)


def _layers_in(module: SourceModule, node: ast.AST, calls: list[ast.Call], seen: set[str]) -> Layers:
    """Return the kinds that a class or function makes, be it by the program's other classes and functions."""
    found: Layers = {}
    values = SettledValues(module, calls)
    used = _attributes_with_use(module, node, values)
    for call in walk(node):
        if not isinstance(call, ast.Call) or used.get(call, True) is False:
            continue
        name = module.qualify(call.func) or ""
        is_whole = _normalises_batches(module, call)
        is_layer = is_whole or (
            name.startswith("torch.nn.")
            and (
                _acts_differently_in_training(call, name, values)
                or _drops_in_training(call, name, values)
                or _drops_by_option(module, call, name, values)
            )
        )
        inner = module.classes.named(call.func) or module.functions.named(call.func)
        if isinstance(inner, ast.Lambda) or (inner is not None and inner.name in seen):
            inner = None
        taken = is_taken(module, call, values) if is_layer or inner is not None else False
        if taken is False:
            continue
        surely = bool(taken and used.get(call, True)) and _has_certain_dropout(module, call, name, values)
        if is_layer:
            _add_layer_kinds(found, {"BatchNorm" if is_whole else name.rsplit(".", 1)[-1]: surely})
        if inner is not None:
            _add_layer_kinds(
                found, _layers_in(module, inner, [*calls, call], seen | {inner.name}), surely=surely
            )
    return found


def _normalises_batches(module: SourceModule, call: ast.Call) -> bool:
    """Tell a model of torchvision's with batch norm, if it is given no norm of another kind."""
    is_plain = argument(call, None, "norm_layer") is None and not has_star_args(call)
    return is_plain and bool(BATCH_NORMALISED.match(module.qualify(call.func) or ""))


def _acts_differently_in_training(call: ast.Call, name: str, values: SettledValues) -> bool:
    """Tell a layer that acts differently in training; dropout at a rate of 0 does not."""
    drops_nothing = "Dropout" in name and values.of(argument(call, 0, "p")) == 0
    return bool(_SENSITIVE.search(name)) and not drops_nothing
