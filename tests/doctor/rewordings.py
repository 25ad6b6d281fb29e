# SPDX-License-Identifier: Apache-2.0
"""Says the same program in other words: each function here returns texts, by path, that do the same as the one given.

The text is the prelude of every example and what follows it; `main.py` is the file that a reader starts with.
"""

import ast
import copy
import itertools

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
HEAD = (ast.Import, ast.ImportFrom)
LOOPS = (ast.For, ast.While)


class NotApplicableError(Exception):
    """There is nothing in this program that the rewording changes."""


def written(statements):
    return {"main.py": ast.unparse(ast.fix_missing_locations(ast.Module(list(statements), [])))}


def parts(tree):
    """Return the imports, and the rest."""
    return [each for each in tree.body if isinstance(each, HEAD)], [
        each for each in tree.body if not isinstance(each, HEAD)
    ]


def assigned(nodes):
    """Return the names that statements of one scope bind, functions and classes not among them."""
    found = {}
    for node in itertools.chain.from_iterable(map(walk_scope, nodes)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
    return list(found)


def walk_scope(node):
    yield node
    if not isinstance(
        node, (*DEFINITIONS, ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.DictComp, ast.SetComp)
    ):
        for child in ast.iter_child_nodes(node):
            yield from walk_scope(child)


def augmented(node):
    """Return the names that `name += value` reads and binds in a statement."""
    found = [each.target for each in walk_scope(node) if isinstance(each, ast.AugAssign)]
    return {each.id for each in found if isinstance(each, ast.Name)}


def loaded(nodes):
    return {
        node.id
        for each in nodes
        for node in ast.walk(each)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def statement(text):
    return ast.parse(text).body[0]


# ── the rewordings ────────────────────────────────────────────────────────────────────────────────


def other_names(tree):
    """Give every variable another name."""
    names = {name: f"{name}_of_mine" for name in assigned(tree.body)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            own = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
            for name in (
                own | set(assigned(getattr(node, "body", []) if not isinstance(node, ast.Lambda) else []))
            ) & set(names):
                del names[name]
    if not names:
        raise NotApplicableError
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            node.id = names[node.id]
    return written(tree.body)


class _Between(ast.NodeTransformer):
    """Gives the calls within calls of a statement a name each, in the order in which they are evaluated."""

    def __init__(self, counter):
        self.counter, self.before = counter, []

    def visit_Call(self, node):
        node.args = [self.named(each) for each in node.args]
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.named(node.func.value)
        return node

    def named(self, node):
        node = self.visit(node)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return node
        name = f"between{next(self.counter)}"
        self.before.append(ast.Assign([ast.Name(name, ast.Store())], node))
        return ast.Name(name, ast.Load())

    def generic_visit(self, node):
        skipped = (
            *DEFINITIONS,
            ast.Lambda,
            ast.GeneratorExp,
            ast.ListComp,
            ast.DictComp,
            ast.SetComp,
            ast.IfExp,
            ast.BoolOp,
        )
        return node if isinstance(node, skipped) else super().generic_visit(node)


def variable_between(tree):
    """Keep what a call is given in a variable first."""
    counter = itertools.count()

    def blocks(body):
        for each in body:
            if isinstance(each, ast.Assign | ast.Expr | ast.Return | ast.AugAssign) and getattr(
                each, "value", None
            ):
                visitor = _Between(counter)
                each.value = visitor.visit(each.value)
                yield from visitor.before
            for name in ("body", "orelse", "finalbody"):
                if getattr(each, name, None) and not isinstance(each, ast.Lambda):
                    setattr(each, name, list(blocks(getattr(each, name))))
            yield each

    body = list(blocks(tree.body))
    if not next(counter):
        raise NotApplicableError
    return written(body)


def in_function(tree):
    """Put everything that happens into a function, and call it."""
    head, rest = parts(tree)
    defined = [each for each in rest if isinstance(each, DEFINITIONS)]
    body = [each for each in rest if not isinstance(each, DEFINITIONS)]
    inner = loaded(defined) & set(assigned(body))
    if not body or inner:
        raise NotApplicableError
    function = statement("def main(): pass")
    function.body = body
    return written([*head, *defined, function, statement("main()")])


def _with_helper(tree):
    """Return the imports, the definitions, one helper with the loops of the file, and what calls it."""
    head, rest = parts(tree)
    defined = [each for each in rest if isinstance(each, DEFINITIONS)]
    body = [each for each in rest if not isinstance(each, DEFINITIONS)]
    place = next((index for index, each in enumerate(body) if isinstance(each, LOOPS)), None)
    if place is None or loaded(defined) & set(assigned(body)):
        raise NotApplicableError
    loop, before, after = body[place], body[:place], body[place + 1 :]
    given = [name for name in assigned(before) if name in loaded([loop]) | augmented(loop)]
    back = [name for name in assigned([loop]) if name in loaded(after)]
    if isinstance(loop, ast.While) and set(assigned([loop])) & set(assigned(before)) - set(given):
        raise NotApplicableError
    helper = statement(f"def helper({', '.join(given)}): pass")
    helper.body = [loop, *([statement(f"def f():\n    return {', '.join(back)}").body[0]] if back else [])]
    call = f"helper({', '.join(given)})"
    return (
        head,
        defined,
        helper,
        [*before, statement(f"{', '.join(back)} = {call}" if back else call), *after],
    )


def helper(tree):
    """Put the loop into a function that is given what it needs."""
    head, defined, function, body = _with_helper(tree)
    return written([*head, *defined, function, *body])


def method(tree):
    """Put the loop into the method of an object that keeps what it needs."""
    head, defined, function, body = _with_helper(tree)
    names = [each.arg for each in function.args.args]
    kept = "".join(f"        self.{name} = {name}\n" for name in names) or "        pass\n"
    owner = statement(f"class Work:\n    def __init__(self{''.join(', ' + each for each in names)}):\n{kept}")
    changed = {name for name in names if name in assigned(function.body)}
    for node in [node for each in function.body for node in ast.walk(each)]:
        for field, value in ast.iter_fields(node):
            old = value if isinstance(value, list) else [value]
            new = [
                ast.Attribute(ast.Name("self", ast.Load()), each.id, each.ctx)
                if isinstance(each, ast.Name) and each.id in names and each.id not in changed
                else each
                for each in old
            ]
            setattr(node, field, new if isinstance(value, list) else new[0])
    function.args.args = [ast.arg("self"), *(ast.arg(name) for name in names if name in changed)]
    owner.body.append(function)
    text = ast.unparse(ast.Module(body, []))
    ours = f"Work({', '.join(names)}).helper({', '.join(name for name in names if name in changed)})"
    text = text.replace(f"helper({', '.join(names)})", ours, 1)
    return written([*head, *defined, owner, *ast.parse(text).body])


def other_file(tree):
    """Keep classes and functions, the loop among them, in a file of their own."""
    try:
        head, defined, function, body = _with_helper(tree)
        defined = [*defined, function]
    except NotApplicableError:
        head, rest = parts(tree)
        defined = [each for each in rest if isinstance(each, DEFINITIONS)]
        body = [each for each in rest if not isinstance(each, DEFINITIONS)]
    if (
        not defined
        or not body
        or loaded(defined)
        & set(assigned(body))
        - {each.arg for node in defined for each in ast.walk(node) if isinstance(each, ast.arg)}
    ):
        raise NotApplicableError
    names = ", ".join(each.name for each in defined)
    return {
        **written([*copy.deepcopy(head), statement(f"from parts.work import {names}"), *body]),
        "parts/__init__.py": "",
        "parts/work.py": written([*head, *defined])["main.py"],
    }


def inverse_condition(tree):
    """Ask the other way round."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    if not found:
        raise NotApplicableError
    for node in found:
        node.test = ast.UnaryOp(ast.Not(), node.test)
        node.body, node.orelse = node.orelse or [ast.Pass()], node.body
    return written(tree.body)


def guarded(tree):
    """Do it all only if a switch is on."""
    head, rest = parts(tree)
    place = next((index for index, each in enumerate(rest) if isinstance(each, LOOPS)), None)
    if place is None:
        raise NotApplicableError
    switch = statement("switch = bool(os.environ.get('TRAIN'))")
    return written([*head, switch, *rest[:place], ast.If(ast.Name("switch", ast.Load()), rest[place:], [])])


def within_with(tree):
    """Put what a loop does into a with block that changes nothing."""
    loops = [node for node in ast.walk(tree) if isinstance(node, LOOPS)]
    if not loops:
        raise NotApplicableError
    for loop in loops:
        block = statement("with torch.profiler.record_function('part'): pass")
        if any(isinstance(each, ast.Break | ast.Continue) for each in loop.body):
            continue
        block.body, loop.body = loop.body, [block]
    return written(tree.body)


def _held(tree, holder, made, chosen=None):
    """Keep each variable of the file in an object: `holder` makes the place of a name in it."""
    head, rest = parts(tree)
    defined = [each for each in rest if isinstance(each, DEFINITIONS)]
    names = set(assigned([each for each in rest if not isinstance(each, (*DEFINITIONS, *LOOPS))]))
    names -= loaded(defined) | set(assigned([each for each in rest if isinstance(each, LOOPS)]))
    names &= {
        each.targets[0].id
        for each in rest
        if isinstance(each, ast.Assign) and len(each.targets) == 1 and isinstance(each.targets[0], ast.Name)
    }
    inside = {
        node.id
        for each in rest
        for part in ast.walk(each)
        if isinstance(part, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.DictComp | ast.SetComp)
        for node in ast.walk(part)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    names -= inside
    if not names:
        raise NotApplicableError

    class Held(ast.NodeTransformer):
        def visit_Name(self, node):
            return holder(node.id, node.ctx) if node.id in names else node

    body = [each if isinstance(each, DEFINITIONS) else Held().visit(each) for each in rest]
    place = max((index + 1 for index, each in enumerate(body) if isinstance(each, DEFINITIONS)), default=0)
    first = min((index for index, each in enumerate(body) if not isinstance(each, DEFINITIONS)), default=0)
    place = min(place, first)
    return written([*head, *body[:place], *made, *body[place:]])


def in_attributes(tree):
    """Keep the variables as attributes of an object."""
    made = ast.parse("class Kept:\n    pass\nkept = Kept()").body
    return _held(tree, lambda name, ctx: ast.Attribute(ast.Name("kept", ast.Load()), name, ctx), made)


def in_dict(tree):
    """Keep the variables in a dict."""
    made = ast.parse("kept = {}").body
    return _held(
        tree, lambda name, ctx: ast.Subscript(ast.Name("kept", ast.Load()), ast.Constant(name), ctx), made
    )


def _assignments(tree):
    found = [
        each
        for each in tree.body
        if isinstance(each, ast.Assign)
        and isinstance(each.targets[0], ast.Name)
        and isinstance(each.value, ast.Call)
    ]
    if not found:
        raise NotApplicableError
    return found


def in_tuples(tree):
    """Take each object out of a pair."""
    for each in _assignments(tree):
        each.targets = [ast.Tuple([*each.targets, ast.Name("rest", ast.Store())], ast.Store())]
        each.value = ast.Tuple([each.value, ast.Constant(None)], ast.Load())
    return written(tree.body)


def aliased(tree):
    """Import under other names, and give each object a second one, by which it is used."""
    names = {"torch": "tt", "F": "functional", "nn": "layers"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            node.id = names[node.id]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for each in node.names:
                bound = each.asname or each.name
                if bound in names:
                    each.asname = names[bound]
                elif isinstance(node, ast.Import) and each.name.startswith("torch.") and not each.asname:
                    raise NotApplicableError
    return written(tree.body)


def from_factory(tree):
    """Let a function make each object."""
    made = _assignments(tree)
    body = []
    for each in tree.body:
        if each in made:
            name = f"make_{each.targets[0].id}"
            function = statement(f"def {name}():\n    return None")
            function.body[0].value = each.value
            each.value = ast.Call(ast.Name(name, ast.Load()), [], [])
            body.append(function)
        body.append(each)
    return written(body)


REWORDINGS = [
    other_names, variable_between, in_function, helper, method, other_file, inverse_condition, guarded, within_with,
    in_attributes, in_dict, in_tuples, aliased, from_factory,
]  # fmt: skip


def reworded(rewording, text):
    """Return the texts of a reworded program, by path.

    Raises:
        NotApplicableError: the rewording changes nothing in it.
    """
    return rewording(ast.parse(text))
