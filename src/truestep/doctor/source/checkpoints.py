# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint holds: the keys that a program writes, and those that it reads from what it loads."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, given_to

_SAVES = ("torch.save", "save", "save_checkpoint", "save_state", "save_on_master")


@dataclass
class LoadInSource:
    """One checkpoint that is read in a function: where, and which keys of it."""

    call: ast.Call
    keys: dict[str, ast.expr] = field(default_factory=dict)  # each with the text that names it
    texts: set[ast.AST] = field(default_factory=set)  # all that name or ask for a key
    is_whole: bool = False  # it is handed on: what else reads of it is not known


def checkpoint_loads(module: SourceModule) -> Iterator[LoadInSource]:
    """Yield each `c = torch.load(...)` with the keys that its function reads from c."""
    for call in module.calls("torch.load"):
        parent = module.parents[call]
        name = (
            dotted_name(parent.targets[0])
            if isinstance(parent, ast.Assign) and len(parent.targets) == 1
            else None
        )
        if name is None:
            continue
        loaded = LoadInSource(call)
        scope = module.scope(call)
        for read in module.reads(name):
            if scope in (module.scope(read), *module.ancestors(read)) and _can_read_checkpoint(
                module, read, call
            ):
                _note_read_key(module, loaded, read)
        yield loaded


def _can_read_checkpoint(module: SourceModule, read: ast.expr, call: ast.Call) -> bool:
    """Tell whether a name may hold this checkpoint where it is read: another arm of a test has one of its own."""
    return not isinstance(read, ast.Name) or any(
        each.value is None or each.value is call for each in module.resolver.reaching(read)
    )


def _note_read_key(module: SourceModule, loaded: LoadInSource, read: ast.expr) -> None:
    above = module.parents[read]
    key: ast.AST | None = None
    if isinstance(above, ast.Subscript) and above.value is read:
        key = above.slice
    elif isinstance(above, ast.Attribute) and above.attr in ("get", "pop"):
        call = module.parents[above]
        key = call.args[0] if isinstance(call, ast.Call) and call.args else None
    elif isinstance(above, ast.Compare) and isinstance(above.ops[0], (ast.In, ast.NotIn)):
        loaded.texts.add(above.left)
        return
    if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
        loaded.is_whole = True
        return
    loaded.keys.setdefault(key.value, key)
    loaded.texts.add(key)


@dataclass
class SaveInSource:
    """One dict that is saved."""

    call: ast.Call
    keys: dict[str, ast.expr]  # what is saved under each
    texts: set[ast.AST]


def checkpoint_saves(module: SourceModule) -> Iterator[SaveInSource]:
    """Yield each dict that a file saves, with its keys; nothing where some of it is out of sight."""
    for call in module.all(ast.Call):
        name = module.qualify(call.func) or (dotted_name(call.func) or "")
        if name == "torch.save" or name.rsplit(".", 1)[-1] in _SAVES:
            for given in given_to(call):
                found = SaveInSource(call, {}, set())
                if _gather_dict_keys(module, given, found) and found.keys:
                    yield found


def _gather_dict_keys(module: SourceModule, node: ast.expr, found: SaveInSource) -> bool:
    """Note the keys of a dict; False where it is none that is in sight."""
    values = [node] if isinstance(node, (ast.Dict, ast.Call)) else module.definitions(node)
    for value in values:
        if isinstance(value, ast.Call) and dotted_name(value.func) == "dict" and not value.args:
            found.keys |= {word.arg: word.value for word in value.keywords if word.arg}
            found.texts |= {word.value for word in value.keywords}
        elif isinstance(value, ast.Dict):
            for key, kept in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.keys[key.value] = kept
                    found.texts.add(key)
        else:
            return False
    return bool(values)


def is_text_elsewhere(module: SourceModule, key: str, known: set[ast.AST]) -> bool:
    """Tell whether the program has a text, or a keyword, anywhere but at these nodes."""
    for file in module.program.linked:
        if any(each.value == key and each not in known for each in file.all(ast.Constant)):
            return True
        if any(each.arg == key and each.value not in known for each in file.all(ast.keyword)):
            return True
    return False
