# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that can't be resumed from."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck, Unsure
from truestep.doctor.source.checkpoints import checkpoint_loads
from truestep.doctor.source.counters import counted_loops, is_model_made_anew, is_named_as_counter
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, last_part, receiver_of, walk
from truestep.doctor.source.training_actions import SAVE_STATE
from truestep.doctor.source.value_origins import argument, constant, resolve_expression, value_origins

_SHOWS = ("print", "info", "debug", "warning", "log", "write", "format", "set_description")
_LOADED = re.compile(r"ckpt|check|saved|load|resum|snap|restor|state_dict", re.IGNORECASE)
_BEST = re.compile(r"(^|_)best(_|$)|Best", re.ASCII)
_STATES = ("state", "__dict__", "param_groups")


class OptimizerNotSaved(SourceCheck):
    """A checkpoint holds the weights and the step or epoch to resume from, but no optimizer state.

    Why: after resuming, momentum and Adam's averages start from zero: another run than the uninterrupted one.

    Bad:
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            torch.save({"net": net.state_dict(), "epoch": epoch}, "last.pt")  # here

    Good:
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, "last.pt")

    Fix: save optimizer, scheduler, scaler and random state too.

    Evidence: found in the wild (docs/wild.md); Project-MONAI/tutorials b3c6c998
    pathology/multiple_instance_learning/panda_mil_train_evaluate_pytorch_gpu.py:196; corpus, 186 repositories,
    beds B, D, F, H, K, L, M, N, O, P, R, S, T, V, W, X: 19 true, 8 debatable, 16 false.
    """

    code = "SAVE005"
    never = (SAVE_STATE,)
    words = ("state_dict",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report a saved dict with a state_dict and a counter, where no optimizer's is asked for."""
        is_saved_somewhere = _is_optimizer_method_called(module, "state_dict")
        for call in module.calls("torch.save"):
            if is_saved_somewhere and not _resumes_without_optimizer(module, call):
                continue
            given = call.args[0] if call.args else None
            values = (module.definitions(given) if given is not None else []) or [given]
            saved = [each for each in values if isinstance(each, ast.Dict)]
            keys = [key for each in saved for key in _training_counter_keys(module, each)]
            if any(_is_optimizer(module, asked) for each in saved for asked in _state_dict_owners(each)):
                continue
            if any(_holds_optimizer(module, value) for each in saved for value in each.values):
                continue
            if keys and any(_can_hold_other_states(each) for each in saved):
                yield Unsure(call, "what else is saved, a comprehension or another dict tells")
            elif keys:
                is_gone_on_from = any(_is_key_used_on_resume(module, call, each) for each in keys)
                best = _is_best_weights_save(module, call) and not is_gone_on_from
                if best and _is_loaded_only_to_evaluate(module, call):
                    continue
                text = "A step or epoch to resume from is saved, but no optimizer state."
                resumes = is_gone_on_from or _has_call_named_resume(module)
                yield At(call, text, RISK if resumes and not best else ADVICE)


def _has_call_named_resume(module: SourceModule) -> bool:
    """Tell a program that calls what is named for it; without, nothing goes on from what is saved."""
    return bool(module.program.called_anywhere("load_checkpoint", "restore", "resume"))


def _is_optimizer_method_called(module: SourceModule, method: str) -> bool:
    """Tell whether an optimizer is asked for its state anywhere, or given one."""
    asked = [call.func for call in module.program.called_anywhere(method)]
    return any(
        _is_optimizer(module.home(each), each.value) for each in asked if isinstance(each, ast.Attribute)
    )


def _is_optimizer(module: SourceModule, asked: ast.expr) -> bool:
    """Tell one by its name, and one of another name by what makes it: `self.trainer = torch.optim.Adam(...)`."""
    return "opt" in ast.unparse(asked).lower() or module.kind(asked) == "optimizer"


def _resumes_without_optimizer(module: SourceModule, save: ast.Call) -> bool:
    """Tell a file that a counter is read from when the run goes on, while no optimizer is given a state from any file."""
    path = resolve_expression(module, argument(save, 1, "f"))
    if path is None or _is_optimizer_method_called(module, "load_state_dict"):
        return False
    loads = [each for file in module.program.linked for each in checkpoint_loads(file) if not each.is_whole]
    return any(
        any(is_named_as_counter(key) for key in each.keys)
        and _is_same_path(path, resolve_expression(module.home(each.call), argument(each.call, 0, "f")))
        for each in loads
    )


def _is_loaded_only_to_evaluate(module: SourceModule, save: ast.Call) -> bool:
    """Tell a file whose loads, all in sight, take entries out of it that are no counters: weights to evaluate."""
    path = resolve_expression(module, argument(save, 1, "f"))
    if path is None:
        return False
    found = [
        _keys_read_from_load(file, call)
        for file in module.program.linked
        for call in file.calls("torch.load")
        if _is_same_path(path, resolve_expression(file, argument(call, 0, "f")))
    ]
    return bool(found) and all(keys and not any(map(is_named_as_counter, keys)) for keys in found)


def _keys_read_from_load(module: SourceModule, load: ast.Call) -> list[str]:
    """Return the keys that are read of a loaded dict, at once or by its name; none where others may be."""
    parent = module.parents[load]
    if isinstance(parent, ast.Subscript) and parent.value is load:
        key = constant(parent.slice)
        return [key] if isinstance(key, str) else []
    return next(
        (list(each.keys) for each in checkpoint_loads(module) if each.call is load and not each.is_whole), []
    )


def _is_same_path(path: ast.expr, other: ast.expr | None) -> bool:
    """Tell one written name of a file."""
    return isinstance(constant(path), str) and other is not None and constant(path) == constant(other)


def _can_hold_other_states(saved: ast.Dict) -> bool:
    """Tell states of objects that a loop goes through, and `**states` from out of sight: an optimizer's may be there."""
    if any(
        key is None and not isinstance(value, ast.Dict)
        for key, value in zip(saved.keys, saved.values, strict=True)
    ):
        return True
    comprehensions = (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
    asked = [
        part
        for value in saved.values
        for each in walk(value)
        if isinstance(each, comprehensions)
        for part in walk(each)
    ]
    return any(isinstance(each, ast.Attribute) and each.attr == "state_dict" for each in asked)


def _is_best_weights_save(module: SourceModule, call: ast.Call) -> bool:
    """Tell a save in a branch that no counter's remainder opens, or by `save_best()`: of the best weights, as a rule."""
    function = module.scope(call)
    if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and _BEST.search(function.name):
        return True
    tests = [each.test for each in module.ancestors(call) if isinstance(each, ast.If)]
    remainders = [part for test in tests for part in walk(test) if isinstance(part, ast.Mod)]
    return bool(tests) and (not remainders or any(_is_comparison_of_two_values(each) for each in tests))


def _is_comparison_of_two_values(test: ast.expr) -> bool:
    """Tell `accuracy > best`, be it within what is done at every hundredth step."""
    ordered = isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Gt, ast.GtE, ast.Lt, ast.LtE))
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) and ordered else []
    return bool(sides) and all(
        isinstance(each, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) for each in sides
    )


def _holds_optimizer(module: SourceModule, value: ast.expr) -> bool:
    """Tell an entry that is an optimizer, or holds one or its `state`: it is pickled with what it has."""
    parts = [each for each in walk(value) if isinstance(each, (ast.Name, ast.Attribute))]
    asked = [each for each in parts if isinstance(module.parents[each], ast.Attribute)]
    given = [each for each in parts if each not in asked]
    states = [each.value for each in given if isinstance(each, ast.Attribute) and each.attr in _STATES]
    return any(module.kind(each) == "optimizer" for each in [*given, *states])


def _is_key_used_on_resume(module: SourceModule, save: ast.Call, key: ast.expr | None) -> bool:
    """Tell whether some part of the program reads the key of what it loads, and does more than to show it."""
    kept = _file_names(module, argument(save, 1, "f"))
    name = constant(key)
    return name is not None and any(
        constant(asked) == name
        and _can_come_from_file(other, held)
        and not _is_only_printed_or_logged(other, read)
        and not _is_loaded_from_other_file(other, held, kept)
        for other in module.program.linked
        for read, held, asked in _checkpoint_key_reads(other)
    )


def _is_loaded_from_other_file(module: SourceModule, held: ast.expr, kept: set[str | None]) -> bool:
    """Tell what is loaded from files of other names than one that is saved, such as another script's."""
    made = [each for each in value_origins(module, held) if isinstance(each, ast.Call)]
    loads = [each for each in made if module.home(each).qualify(each.func) == "torch.load"]
    names = {name for each in loads for name in _file_names(module.home(each), argument(each, 0, "f"))}
    return bool(names) and bool(kept) and None not in names | kept and names.isdisjoint(kept)


def _file_names(module: SourceModule, path: ast.expr | None) -> set[str | None]:
    """Return what the last part of a path is called, "last.pt" of `folder / "last.pt"`; None for a name that is out of sight."""
    origins = list(value_origins(module, path)) if path is not None else [None]
    return {_last_path_component(each) for each in origins}


def _last_path_component(path: ast.expr | None) -> str | None:
    match path:
        case ast.BinOp(op=ast.Div(), right=last) | ast.Call(args=[*_, last]):
            return _last_path_component(last)
        case ast.Constant(value=str() as text):
            return text.rpartition("/")[2]
    return None


def _checkpoint_key_reads(module: SourceModule) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    """Yield each `held[asked]`, `held.get(asked)` and `held.pop(asked)` of a file."""
    for each in module.all(ast.Subscript):
        if isinstance(each.ctx, ast.Load):
            yield each, each.value, each.slice
    for call in module.method_calls("get", "pop"):
        held = receiver_of(call)
        if held is not None and call.args:
            yield call, held, call.args[0]


def _can_come_from_file(module: SourceModule, held: ast.expr) -> bool:
    """Tell what comes from a file; of what is out of sight, what is called so, from other dicts of the program."""
    made = list(value_origins(module, held))
    names = [(dotted_name(each.func) or "").lower() for each in made if isinstance(each, ast.Call)]
    if any("load" in each or "checkpoint" in each or "restore" in each for each in names):
        return True
    return not names and bool(_LOADED.search(ast.unparse(held)))


def _is_only_printed_or_logged(module: SourceModule, read: ast.expr) -> bool:
    """Tell a value that is printed or logged, at once or by its name, and nothing else."""
    for each in module.ancestors(read):
        if isinstance(each, ast.Call) and last_part(each.func) in _SHOWS:
            return True
        if isinstance(each, ast.stmt):
            break
    statement = module.statement(read)
    name = (
        dotted_name(statement.targets[0])
        if isinstance(statement, ast.Assign) and statement.value is read
        else None
    )
    reads = [each for each in module.reads(name) if each.lineno > read.lineno] if name is not None else []
    scope = module.scope(read)
    reads = [each for each in reads if module.scope(each) is scope]
    is_named = name is not None and isinstance(getattr(statement, "targets", [None])[0], ast.Name)
    return is_named and all(_is_only_printed_or_logged(module, each) for each in reads)


def _training_counter_keys(module: SourceModule, saved: ast.Dict) -> list[ast.expr | None]:
    """Return the keys of counters of a training's loop in a dict of weights."""
    models = _state_dict_owners(saved)
    pairs = zip(saved.keys, saved.values, strict=True)
    return [key for key, value in pairs if models and _is_training_counter(module, key, value, models[0])]


def _state_dict_owners(saved: ast.Dict) -> list[ast.expr]:
    """Return whose state_dict() a dict holds."""
    calls = [each.func for value in saved.values for each in walk(value) if isinstance(each, ast.Call)]
    return [each.value for each in calls if isinstance(each, ast.Attribute) and each.attr == "state_dict"]


def _is_training_counter(
    module: SourceModule, key: ast.expr | None, value: ast.expr, model: ast.expr
) -> bool:
    """Tell the counter of a loop that trains this model; what is out of sight goes by its names."""
    loops = counted_loops(module, value)
    if loops is None:
        names = last_part(value), constant(key)
        return any(is_named_as_counter(each) for each in names if isinstance(each, str))
    training = loops & module.program.training_loops()
    return any(not is_model_made_anew(module, each, model) for each in training)
