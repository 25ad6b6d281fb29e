# SPDX-License-Identifier: Apache-2.0
"""An option that a module takes and never uses, and a transform that a data set never applies."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.live_variables import is_in_comment, names_read
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, dotted_name, walk
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.value_origins import argument, constant, has_star_args

# options that change what is computed, whoever gives them; a size or a name may be there for others
_MATTERS = frozenset((
    "loss_weight", "ignore_index", "reduction", "label_smoothing", "smoothing", "temperature", "class_weight",
    "class_weights", "pos_weight", "gamma", "alpha", "beta", "margin", "tau", "kl_weight", "dropout", "drop_rate",
    "dropout_rate", "drop_prob", "attn_drop", "drop_path",
))  # fmt: skip


_KEEPS_ALL = frozenset(
    ("save_hyperparameters", "register_to_config")
)  # every argument, as self.hparams or self.config
_KEPT = ("hparams", "config")
_NEUTRAL = (
    None,
    0,
    1,
    -100,
)  # no weights, no dropout, a factor of one, the target that torch leaves out anyway
_CHANGES = re.compile(
    r"(^|_)(transforms?|aug|augment\w*)(_|$)", re.IGNORECASE
)  # what a data set applies to examples
_PLACES = re.compile(r"(^|_)(cuda|gpus?)(_|$)")  # where a model stands, which its caller may see to
_SAYS_SO = re.compile(r"fixme|todo|\bnot?\b|unused|ignored", re.IGNORECASE)
_BASES = {
    "torch.utils.data.Dataset",
    "torch.utils.data.dataset.Dataset",
    "object",
    "typing.Generic",
    "abc.ABC",
}


class OptionIgnored(SourceCheck):
    """A module takes an option that changes what it computes, and nothing uses it; or a data set a transform.

    Why: whoever sets it trains with another loss, another net or other examples than the configuration says.

    Bad:
        class SmoothLoss(nn.Module):
            def __init__(self, loss_weight=1.0):
                super().__init__()
                self.loss_weight = loss_weight

            def forward(self, outputs, labels):
                return F.cross_entropy(outputs, labels, label_smoothing=0.1)  # here

    Good:
        class SmoothLoss(nn.Module):
            def __init__(self, loss_weight=1.0):
                super().__init__()
                self.loss_weight = loss_weight

            def forward(self, outputs, labels):
                return self.loss_weight * F.cross_entropy(outputs, labels, label_smoothing=0.1)

    Fix: use it, or take it away.

    Evidence: 186 repositories, beds A, B, C, D, E, F, G, H, K, L, M, N, Q, R, T, U, V, W, X, Y: 45 true, 22
    debatable, 3 false.
    """

    code = "PARAM038"
    words = (*sorted(_MATTERS), "transform", "aug", "=True", "=False")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such parameters of __init__ that are read by nothing, or stored in what nothing reads."""
        for owner in module.kinds.classes_of("module", "loss"):
            made = [
                each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"
            ]
            forward = module.classes.method(owner, "forward")
            if (
                not made
                or forward is None
                or module.classes.subclasses_of(owner)
                or _is_unimplemented(forward)
            ):
                continue
            arguments = [*made[0].args.args, *made[0].args.kwonlyargs]
            for name in [each.arg for each in arguments if each.arg in _MATTERS]:
                node = _node_ignoring_parameter(module, made[0], name)
                for call in _calls_overriding_option(module, owner, made[0], name) if node is None else ():
                    text = f"self.{name} is there for it, and {name}= is given something else."
                    yield At(call, text, RISK)
                if node is not None:
                    place = _last_return_of_forward(module, owner, forward) if name == "loss_weight" else node
                    severity = ADVICE if _is_unused_option_harmless(module, made[0], name) else RISK
                    yield At(place, f"Nothing uses {owner.name}'s {name!r}.", severity)
            for name in _unread_boolean_options(module, made[0]):
                text = f"{owner.name} is made with another {name}= than its default, and nothing uses it."
                yield At(made[0], text, ADVICE if _PLACES.search(name) else RISK)
        yield from _find_unapplied_dataset_options(module)


def _find_unapplied_dataset_options(module: SourceModule) -> Iterator[At]:
    """Report what calls give to a data set to change its examples by, and it stores where nothing reads it."""
    for owner in module.named_classes:
        made = next((each for each in owner.body if getattr(each, "name", "") == "__init__"), None)
        if not isinstance(made, ast.FunctionDef) or module.classes.method(owner, "__getitem__") is None:
            continue
        if module.classes.bases_out_of_sight(owner) - _BASES:
            continue  # which may apply it
        names = [each.arg for each in [*made.args.args, *made.args.kwonlyargs] if _CHANGES.search(each.arg)]
        for name in names:
            stored = _assignment_storing_parameter(module, made, name)
            calls = module.functions.callers(made)
            given = [each for call in calls if (each := argument_for(made, call, name)) is not None]
            if stored is None or all(isinstance(each, ast.Constant) and not each.value for each in given):
                continue
            place = stored.targets[0]
            if isinstance(place, ast.Attribute) and not _is_attribute_read(module, owner, place.attr):
                left = is_in_comment(module.text, f"self.{place.attr}")
                severity = ADVICE if left or "target" in name else RISK  # a set may have no targets
                yield At(stored, f"{owner.name} never applies {name!r}, which it is given.", severity)


def _assignment_storing_parameter(
    module: SourceModule, made: ast.FunctionDef, name: str
) -> ast.Assign | None:
    """Return `self.x = name`, where that is all that is done with a parameter."""
    reads = [each for each in walk(made) if isinstance(each, ast.Name) and each.id == name]
    node = module.statement(reads[0]) if len(reads) == 1 else None
    if not isinstance(node, ast.Assign) or node.value is not reads[0] or len(node.targets) != 1:
        return None
    return node if (dotted_name(node.targets[0]) or "").startswith("self.") else None


def _is_attribute_read(module: SourceModule, owner: Class, attribute: str) -> bool:
    """Tell whether anything may read this attribute of a class: a method of its own or of an heir, or code outside."""
    if attribute in module.program.texts or module.program.identifiers & {"__dict__", "vars", "getattr"}:
        return True
    own = [*module.classes.lineage(owner), *module.classes.subclasses_of(owner)]
    for read in module.program.attributes_read.get(attribute, ()):
        home = module.home(read)
        if dotted_name(read.value) == "self":
            if home.enclosing(read, ast.ClassDef) in own:
                return True
        elif not _is_library_object(home, read.value):
            return True
    return False


def _is_library_object(module: SourceModule, node: ast.expr) -> bool:
    """Tell an object that is made by a library, or of another class: `scaler.transform(x)`, `transforms.Compose`."""
    first = next((each for each in walk(node) if isinstance(each, ast.Name)), None)
    if isinstance(node, (ast.Name, ast.Attribute)) and first is not None:
        bound = module.names.bindings(first)
        if bound and all(each.how == "import" for each in bound):
            return True
    made = module.definitions(node) if not isinstance(node, ast.Call) else [node]
    return bool(made) and all(
        isinstance(each, ast.Call)
        and module.qualify(each.func) is not None
        and module.classes.named(each.func) is None
        for each in made
    )


def _unread_boolean_options(module: SourceModule, made: ast.FunctionDef) -> Iterator[str]:
    """Yield the switches of a constructor that nothing in it reads, though some call in sight sets them."""
    for name, default in _parameter_defaults(made):
        is_switch = isinstance(default, ast.Constant) and isinstance(default.value, bool)
        if name in _MATTERS or not is_switch or _node_ignoring_parameter(module, made, name) is not made:
            continue
        given = [argument_for(made, call, name) for call in module.functions.callers(made)]
        if any(each not in (None, default) and constant(each) != constant(default) for each in given):
            yield name


def _is_unimplemented(function: Function) -> bool:
    """Tell a function of which nothing is written yet: `pass`, a text, `raise NotImplementedError`."""
    body = function.body if not isinstance(function, ast.Lambda) else []
    texts = [each for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)]
    empty = [each for each in body if isinstance(each, (ast.Pass, ast.Raise))]
    returns = [each for each in body if isinstance(each, ast.Return) and each.value is None]
    return bool(body) and len(body) == len(texts) + len(empty) + len(returns)


def _is_unused_option_harmless(module: SourceModule, made: ast.FunctionDef, name: str) -> bool:
    """Tell an option whose default every call in sight leaves as it is; without any, one that changes nothing by itself.

    A `reduction` is one, too: the class reduces by itself. So is what a comment uses, or says of it.
    """
    calls = module.functions.callers(made)
    owner = module.enclosing(made, ast.ClassDef) or made
    lines = module.text.splitlines()[owner.lineno - 1 : owner.end_lineno]
    behind = [each.partition("#")[2] for each in lines]
    if any(name in each and _SAYS_SO.search(each) for each in behind):
        return True
    default = next((each[1] for each in _parameter_defaults(made) if each[0] == name), None)
    if default is None or any(
        has_star_args(each) or argument_for(made, each, name) is not default for each in calls
    ):
        return False
    is_meant = name == "reduction" or is_in_comment("\n".join(lines), name)
    return is_meant or bool(calls) or constant(default) in _NEUTRAL


def _calls_overriding_option(
    module: SourceModule, owner: Class, made: ast.FunctionDef, name: str
) -> Iterator[ast.Call]:
    """Yield the calls of torch in a class that are given a constant for an option which the class has of its own."""
    stored = [each for each in module.classes.attributes(owner).get(name, []) if each.value is not None]
    if not any(isinstance(each.value, ast.Name) and each.value.id == name for each in stored):
        return
    for call in (each for each in walk(owner) if isinstance(each, ast.Call)):
        given = argument(call, None, name)
        in_method = module.scope(call) is not made
        if in_method and given is not None and (module.qualify(call.func) or "").startswith("torch."):
            reduces_itself = name == "reduction" and constant(given) == "none"
            if not reduces_itself and (_is_constant_name(given) or _differs_from_default(made, name, given)):
                yield call


def _differs_from_default(made: ast.FunctionDef, name: str, given: ast.expr) -> bool:
    """Tell a number or text other than the option's default."""
    default = next((each for each in _parameter_defaults(made) if each[0] == name), None)
    return isinstance(given, ast.Constant) and (default is None or constant(default[1]) != given.value)


def _parameter_defaults(made: ast.FunctionDef) -> list[tuple[str, ast.expr | None]]:
    names = [each.arg for each in made.args.args]
    found = list(zip(reversed(names), reversed(made.args.defaults), strict=False))
    return [*found, *zip([each.arg for each in made.args.kwonlyargs], made.args.kw_defaults, strict=True)]


def _is_constant_name(node: ast.expr) -> bool:
    """Tell a constant of a module by its name."""
    last = own_name(node) or ""
    return bool(last) and last.partition("_")[0].isupper() and len(last) > 1


def _node_ignoring_parameter(module: SourceModule, function: ast.FunctionDef, name: str) -> ast.AST | None:
    """Return the function that never reads its parameter, or the statement that only stores it."""
    reads = [each for each in walk(function) if isinstance(each, ast.Name) and each.id == name]
    reads = [each for each in reads if isinstance(each.ctx, ast.Load)]
    if not reads:
        is_used = "locals" in names_read(function) or (
            _saves_all_hyperparameters(function)
            and (_is_attribute_or_text_read(module, function, name) or _are_all_hyperparameters_read(module))
        )
        return None if is_used else function
    node = module.statement(reads[0])
    stored = (
        isinstance(node, ast.Assign)
        and dotted_name(node.targets[0]) == f"self.{name}"
        and node.value is reads[0]
    )
    return (
        node
        if stored and len(reads) == 1 and not _is_attribute_or_text_read(module, function, name)
        else None
    )


def _saves_all_hyperparameters(function: ast.FunctionDef) -> bool:
    """Tell whether a library keeps what a constructor is given: `self.save_hyperparameters()`."""
    return any(getattr(each, "attr", getattr(each, "id", "")) in _KEEPS_ALL for each in walk(function))


def _are_all_hyperparameters_read(module: SourceModule) -> bool:
    """Tell whether the program reads all that was kept at once: `Sampler(**self.hparams)`, `vars(self.hparams)`."""
    kept = [each for name in _KEPT for each in module.program.attributes_read.get(name, ())]
    above = [module.home(each).parents[each] for each in kept]
    return not all(isinstance(each, (ast.Attribute, ast.Subscript)) for each in above)


def _is_attribute_or_text_read(module: SourceModule, function: ast.FunctionDef, name: str) -> bool:
    """Tell whether the program reads such an attribute of this class or of any object, or names it in a text."""
    owner = module.enclosing(function, ast.ClassDef)
    own = module.classes.lineage(owner) if owner is not None else []
    if name in module.program.texts or module.program.identifiers & {"__dict__", "vars"}:
        return True
    return any(
        dotted_name(each.value) != "self" or module.enclosing(each, ast.ClassDef) in own
        for each in module.program.attributes_read.get(name, ())
    )


def _last_return_of_forward(module: SourceModule, owner: Class, forward: Function) -> ast.AST:
    """Return the line of forward at which the option is missing."""
    given = module.functions.returns(forward)
    own = module.enclosing(forward, ast.ClassDef) is owner
    return given[-1] if given and own else owner
