# SPDX-License-Identifier: Apache-2.0
"""A transition whose parts are one object."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, dotted, given_to, is_self, last_part, method_of
from truestep.doctor.source.values import unwrapped

_ROLES = 4  # state, action, reward and next state
_SHOWS = ("print", "log", "debug", "info", "warning", "format")
_KEEPS = ("append", "appendleft", "extend", "insert")


class TransitionShared(SourceCheck):
    """What is kept of a step of an environment holds the next state as the state, too, or an array that the environment
    goes on to write into.

    Why: each transition says that nothing changed, so the network learns that actions have no effect.

    Bad:
        memory, state = collections.deque(maxlen=100), env.reset()
        for step in range(100):
            action = policy(state)
            following, reward, terminated, truncated, info = env.step(action)
            state = following
            memory.append((state, action, reward, following, terminated))  # here

    Good:
        memory, state = collections.deque(maxlen=100), env.reset()
        for step in range(100):
            action = policy(state)
            following, reward, terminated, truncated, info = env.step(action)
            memory.append((state, action, reward, following, terminated))
            state = following

    Fix: keep the transition first, then state = following; keep copies, following.copy().

    Evidence: two of twenty mistakes of reinforcement learning that a user wrote for a trial.
    """

    code = "DATA044"
    is_preview = True
    words = (".step(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a transition: in a call, a tuple or a list beside what the step gave."""
        for step in module.all(ast.Assign):
            target, call = step.targets[0], step.value
            if isinstance(call, ast.Call) and method_of(call) == "step" and isinstance(target, ast.Tuple):
                written = _written_over(module, call)
                for holder in [
                    each for kind in (ast.Call, ast.Tuple, ast.List) for each in _beside(module, step, kind)
                ]:
                    following = dotted(target.elts[0]) or ""
                    parts = [each for each in _parts(holder) if isinstance(each, ast.Name)]
                    same = next(
                        (each for each in parts if _is_following(module, step, each, following)), None
                    )
                    if len(_parts(holder)) < _ROLES or following not in {each.id for each in parts}:
                        continue
                    if same is not None:
                        yield At(
                            holder, f"{same.id!r} is {following!r} by now: both states are the same one.", BUG
                        )
                    elif written and _is_kept(module, holder):
                        text = f"{following!r} is {written}, which the environment writes into: all that is kept is its last state."
                        yield At(holder, text, RISK)


def _beside(module: SourceModule, step: ast.Assign, kind: type[ast.expr]) -> list[ast.expr]:
    """Return what stands behind a step in its function, but for targets and what is only shown."""
    found = [each for each in module.directly_in(module.scope(step), kind) if each.lineno > step.lineno]
    shown = [isinstance(each, ast.Call) and last_part(each.func) in _SHOWS for each in found]
    return [
        each
        for each, is_shown in zip(found, shown, strict=True)
        if not (is_shown or (hasattr(each, "ctx") and isinstance(each.ctx, ast.Store)))
    ]


def _parts(holder: ast.expr) -> list[ast.expr]:
    return given_to(holder) if isinstance(holder, ast.Call) else getattr(holder, "elts", [])


def _is_following(module: SourceModule, step: ast.Assign, part: ast.Name, following: str) -> bool:
    """Tell a name that was given the next state before this, be it as a copy."""
    if part.id == following:
        return False
    bindings = module.resolver.reaching(part)
    value = bindings[0].value if len(bindings) == 1 else None
    plain = _uncopied(value) if value is not None else None
    return isinstance(plain, ast.Name) and plain.id == following and bindings[0].line > step.lineno


def _uncopied(value: ast.expr) -> ast.expr:
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="copy")):
            return inner
    return unwrapped(value)


def _is_kept(module: SourceModule, holder: ast.expr) -> bool:
    """Tell what is put into a list or a deque, where it stands or under its name."""
    above = module.parents[holder]
    if isinstance(above, ast.Assign):
        return any(_is_kept(module, each) for each in module.reads(dotted(above.targets[0]) or ""))
    return isinstance(above, ast.Call) and method_of(above) in _KEEPS


def _written_over(module: SourceModule, step: ast.Call) -> str | None:
    """Return the array of its own that an environment gives as it is, and that its methods write into."""
    function = module.functions.called(step)
    for given in module.functions.results(function):
        first = given.elts[0] if isinstance(given, ast.Tuple) and given.elts else given
        inner = module.functions.called(first) if isinstance(first, ast.Call) else None
        for each in module.functions.results(inner) if inner is not None else [first]:
            owner = module.enclosing(each, ast.ClassDef)
            if (
                owner is not None
                and isinstance(each, ast.Attribute)
                and is_self(each.value)
                and _is_rewritten(module, owner, each.attr)
            ):
                return ast.unparse(each)
    return None


def _is_rewritten(module: SourceModule, owner: Class, name: str) -> bool:
    """Tell an attribute that methods write into, and that is given another object where the class is made alone."""
    home = module.home(owner)
    stores = [target for each in home.inside(owner, ast.Assign) for target in each.targets]
    anew = [
        each
        for each in stores
        if dotted(each) == f"self.{name}" and getattr(home.scope(each), "name", "") != "__init__"
    ]
    into = [each.value for each in stores if isinstance(each, ast.Subscript)]
    into += [each.target for each in home.inside(owner, ast.AugAssign)]
    into += [
        each.func.value
        for each in home.inside(owner, ast.Call)
        if isinstance(each.func, ast.Attribute) and each.func.attr in ("fill", "fill_")
    ]
    return not anew and any(dotted(each) == f"self.{name}" for each in into)
