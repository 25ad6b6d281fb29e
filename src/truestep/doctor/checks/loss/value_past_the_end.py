# SPDX-License-Identifier: Apache-2.0
"""A target that goes on past the end of an episode."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, given_to, method_of, walk
from truestep.doctor.source.values import behind, seen_through

_OTHER = re.compile(
    r"^_|info|i(n)?d(ice|e?x|s|$)|weight|prior|act|^(a|ac|u)s?$"
)  # what else a memory gives, by its name
_OF_RETURNS = re.compile(r"gamma|discount|reward|\b0?[.]9\d*\b", re.I)
_ROLES = 4  # state, action, reward and next state
_TEXT = "{!r} of the batch reaches nothing, and the target adds the value of {!r}: behind an episode's end there is none."


class ValuePastTheEnd(SourceCheck):
    """A target adds the value of the next state, and what the batch says of an episode's end is left unused; or a
    time limit is kept as such an end.

    Why: behind a last state there is no reward to come, and the network learns one; behind a time limit there is, and
    it learns none.

    Bad:
        q = nn.Linear(4, 2)
        states, actions, rewards, following, done = memory.sample(8)  # here
        with torch.no_grad():
            target = rewards + 0.99 * q(following).max(1).values
        loss = F.mse_loss(q(states).gather(1, actions).squeeze(1), target)
        loss.backward()

    Good:
        q = nn.Linear(4, 2)
        states, actions, rewards, following, done = memory.sample(8)
        with torch.no_grad():
            target = rewards + 0.99 * (1 - done) * q(following).max(1).values
        loss = F.mse_loss(q(states).gather(1, actions).squeeze(1), target)
        loss.backward()

    Fix: rewards + gamma * (1 - done) * q(following).max(1).values; keep terminated alone as done.

    Evidence: two of twenty mistakes of reinforcement learning that a user wrote for a trial.
    """

    code = "LOSS061"
    is_preview = True
    words = ("loss", "Loss", "step(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a batch, and a time limit beside the next state in what is kept."""
        for statement in module.all(ast.Assign):
            target, value = statement.targets[0], statement.value
            if not isinstance(target, ast.Tuple) or not all(
                isinstance(each, ast.Name) for each in target.elts
            ):
                continue
            names = [each.id for each in target.elts if isinstance(each, ast.Name)]
            if isinstance(value, ast.Call) and method_of(value) == "step" and len(names) > _ROLES:
                yield from _limits_kept(module, statement, names)
            elif len(names) >= _ROLES and not isinstance(value, ast.Tuple):
                yield from _ends_unused(module, statement, names)


def _ends_unused(module: SourceModule, batch: ast.Assign, names: list[str]) -> Iterator[At]:
    following = next(_valued(module, batch), None)
    if following is None:
        return
    unused = [each for each in names if _reaches_nothing(module, batch, each)]
    ends = [each for each in unused if not _OTHER.search(each)]
    if ends and len(names) - len(unused) <= _ROLES:
        yield At(batch, _TEXT.format(ends[-1], following), RISK)


def _valued(module: SourceModule, batch: ast.Assign) -> Iterator[str]:
    """Yield the state whose value is added in `reward + gamma * network(following)`, where both names are the batch's."""
    for total in module.directly_in(module.scope(batch), ast.BinOp):
        for known, added in ((total.left, total.right), (total.right, total.left)):
            share = seen_through(module, added)
            rewards = _of_batch(module, batch, known)
            if not isinstance(total.op, ast.Add) or not isinstance(share, ast.BinOp) or len(rewards) != 1:
                continue
            if isinstance(share.op, ast.Mult) and _OF_RETURNS.search(ast.unparse(total) + ast.unparse(share)):
                valued = [each for each in behind(module, share) if module.qualify(each.func) is None]
                given = {
                    name
                    for each in valued
                    for part in given_to(each)
                    for name in _of_batch(module, batch, part)
                }
                yield from sorted(given - rewards)


def _of_batch(module: SourceModule, batch: ast.Assign, node: ast.expr) -> set[str]:
    """Return the names of a batch of which a value is made."""
    read = [
        each for part in [node, *behind(module, node)] for each in walk(part) if isinstance(each, ast.Name)
    ]
    return {each.id for each in read if any(made.node is batch for made in module.resolver.reaching(each))}


def _reaches_nothing(module: SourceModule, batch: ast.Assign, name: str) -> bool:
    """Tell a name that is only given another form, under its own name or another one."""
    scope, names = module.scope(batch), [name]
    for each in names:
        for read in module.reads(each):
            if module.scope(read) is not scope:
                if scope in module.ancestors(read):
                    return False
                continue
            statement = module.statement(read)
            target = _target_of(statement, read)
            if target is None:
                return False
            names += [target] if target not in names else []
    return True


def _target_of(statement: ast.stmt, read: ast.expr) -> str | None:
    """Return the name that is given what a read becomes: the one name, the one at its place, or its own among several."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(
            values
        ):
            at = next(index for index, each in enumerate(values) if read in walk(each))
            return dotted(names[at])
        case ast.Assign(targets=[ast.Tuple(elts=names)]):
            return next(
                (each.id for each in names if isinstance(each, ast.Name) and each.id == dotted(read)), None
            )
    return None


def _limits_kept(module: SourceModule, step: ast.Assign, names: list[str]) -> Iterator[At]:
    """Report `term or trunc` beside the next state in what is kept, unless the time limit is kept as well."""
    scope = module.scope(step)
    either: list[ast.expr] = [
        each for each in module.directly_in(scope, ast.BoolOp) if isinstance(each.op, ast.Or)
    ]
    either += [each for each in module.directly_in(scope, ast.BinOp) if isinstance(each.op, ast.BitOr)]
    for ends in either:
        both = {each.id for each in walk(ends) if isinstance(each, ast.Name)} & set(names[2:])
        above = module.parents[ends]
        kept = (
            above if isinstance(above, ast.Call) and dotted(above.func) in ("float", "int", "bool") else ends
        )
        stored = module.parents[kept]
        target = stored.targets[0] if isinstance(stored, ast.Assign) else None
        places = module.reads(target.id) if isinstance(target, ast.Name) else [kept]
        for place in places if len(both) > 1 else ():
            holder = module.parents[place]
            if isinstance(module.parents[holder], ast.Return):
                continue  # of an environment around another one
            parts = given_to(holder) if isinstance(holder, ast.Call) else getattr(holder, "elts", [])
            beside = {dotted(each) for each in parts}
            if names[0] in beside and not beside & both and len(parts) >= _ROLES:
                yield At(
                    ends,
                    "A time limit is kept as an end: the value behind it is left out, though rewards go on.",
                    QUESTION,
                )
