# SPDX-License-Identifier: Apache-2.0
"""The same random numbers in every worker."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.finding import Severity
from truestep.doctor.library.functions import functions
from truestep.doctor.source.batch_counts import LOADER, RUN
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, last_part, method_of, walk
from truestep.doctor.source.value_origins import argument, has_star_args, literal

_SEEDS = ("numpy.random.seed", "random.seed")
_VARIES = re.compile(
    r"initial_seed|info|epoch|time|urandom|randint|get_state|entropy", re.IGNORECASE
)  # other in each epoch
_REORDERS = re.compile(r"perm|shuffle|choice|^sample$")
_SAME_ON_PURPOSE = re.compile(r"eval|val|test|fix|determin|repro|seed|not ", re.IGNORECASE)
GENERATORS = functions("makes a generator")


class RandomStreamSharedByWorkers(SourceCheck):
    """A data set keeps a random generator of its own, which every worker copies, or begins it anew for each sample or epoch.

    Why: all workers, or all samples, draw the same numbers, and again the same in every epoch: augmentation repeats itself.
    (Plain np.random differs between workers since torch 1.9; Truestep's
    `run.data` sets a data set's own generators for each sample.)

    Bad:
        class Noisy(Dataset):
            def __init__(self):
                self.rng = np.random.default_rng(0)  # here

            def __getitem__(self, i):
                return self.rng.normal(size=3)

    Good:
        class Noisy(Dataset):
            def __getitem__(self, i):
                return torch.randn(3)

    Fix: no worker_init_fn: since torch 1.9 torch seeds NumPy and Python. Draw from torch's generator, or make one in the
    worker from torch.initial_seed().

    Evidence: corpus, beds B, P, W: 3 true, 2 false.
    """

    code = "DATA003"
    words = ("worker_init_fn", "default_rng", "RandomState", "Random(", "Generator(", "seed(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a generator made in __init__ of a data set and drawn from per sample."""
        for owner in module.kinds.classes_of("dataset", "iterable dataset"):
            for name, bindings in module.classes.attributes(owner).items():
                value = bindings[0].value
                made = isinstance(value, ast.Call) and module.qualify(value.func) in GENERATORS
                home = getattr(module.scope(bindings[0].node), "name", "")
                again = len(bindings) > 1 or self._is_generator_reseeded(module, owner, name)
                if made and home == "__init__" and not again and self._is_read_per_sample(owner, name):
                    if _is_dataset_instantiated(module, owner) and not module.program.answer(
                        _can_have_loader_workers
                    ):
                        continue  # the one copy is the program's own
                    yield At(
                        bindings[0].node,
                        f"Every worker gets a copy of self.{name} and draws the same numbers.",
                        self._severity(module, owner),
                    )

            yield from _same_numbers_for_each_sample(module, owner)
        yield from _same_seeds_in_each_epoch(module)

    def _is_read_per_sample(self, owner: ast.ClassDef, name: str) -> bool:
        methods: list[ast.AST] = [
            node
            for node in owner.body
            if isinstance(node, ast.FunctionDef) and node.name in ("__getitem__", "__iter__")
        ]
        everywhere = methods or [owner]
        return any(
            isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Load)
            for m in everywhere
            for n in walk(m)
        )

    def _is_generator_reseeded(self, module: SourceModule, owner: ast.ClassDef, name: str) -> bool:
        """Tell `self.rng.seed(...)`: each worker, or each epoch, may get a seed of its own."""
        return any(
            each.attr in ("seed", "manual_seed", "set_state")
            and isinstance(each.value, ast.Attribute)
            and each.value.attr == name
            for each in module.inside(owner, ast.Attribute)
        )

    def _severity(self, module: SourceModule, owner: ast.ClassDef) -> Severity:
        """Workers seen to be used for this data set make it certain."""
        every = module.program.called_anywhere("torch.utils.data.DataLoader")
        data = [(call, argument(call, 0, "dataset")) for call in every]
        loaders = [call for call, given in data if given is not None and module.classes.of(given) is owner]
        workers = [literal(module, argument(call, 5, "num_workers")) for call in loaders]
        return BUG if any(workers) else RISK


def _same_numbers_for_each_sample(module: SourceModule, owner: ast.ClassDef) -> Iterator[At]:
    """Report a generator that `__getitem__` makes, or sets, with one seed for whatever sample: not where orders are drawn."""
    for method in owner.body:
        if not isinstance(method, ast.FunctionDef) or method.name != "__getitem__":
            continue
        calls = list(module.inside(method, ast.Call))
        if any(_REORDERS.search(method_of(each)) for each in calls):
            continue  # one order for all samples may be meant
        for call in calls:
            name = module.qualify(call.func) or ""
            is_seeded = name in GENERATORS or name in _SEEDS or method_of(call) == "manual_seed"
            seed = argument(call, 0, "seed") if is_seeded else None
            around = [each.test for each in module.ancestors(call) if isinstance(each, (ast.If, ast.IfExp))]
            if type(number := literal(module, seed)) is int and not any(
                _SAME_ON_PURPOSE.search(ast.unparse(each)) for each in around
            ):
                text = f"Each sample draws the same numbers: the generator begins anew with the seed {number} for each."
                yield At(call, text, RISK)


def _same_seeds_in_each_epoch(module: SourceModule) -> Iterator[At]:
    """Report a worker_init_fn that gives NumPy or Python a seed of the worker's number alone: each epoch has new workers."""
    for call in module.calls(LOADER):
        init = argument(call, 9, "worker_init_fn")
        stays, workers = argument(call, None, "persistent_workers"), argument(call, 5, "num_workers")
        function = _function_for_workers(module, init) if init is not None else None
        if (
            init is None
            or function is None
            or workers is None
            or literal(module, workers) == 0
            or stays is not None
        ):
            continue
        home = module.home(function)
        seeds = [each for each in home.inside(function, ast.Call) if home.qualify(each.func) in _SEEDS]
        used = map(last_part, home.inside(function, ast.Name, ast.Attribute))
        if seeds and not any(map(_VARIES.search, used)) and _draws_by_seeded_generator(module, call, seeds):
            text = f"Line {seeds[0].lineno} gives the new workers of each epoch the same seeds: they draw the same numbers again."
            yield At(init, text, RISK)


def _function_for_workers(module: SourceModule, init: ast.expr) -> Function | None:
    """Return what each worker calls: a function, or the `__call__` of an object, unless the loop may change what that reads."""
    owner = module.classes.of(init)
    method = module.classes.method(owner, "__call__")
    if method is None:
        return module.functions.named(init)
    home = module.home(method)
    used = {each.attr for each in home.inside(method, ast.Attribute)}
    stored = (each for file in module.program.linked for each in file.all(ast.Attribute))
    is_changed = any(
        each.attr in used
        and isinstance(each.ctx, ast.Store)
        and getattr(module.home(each).scope(each), "name", "") != "__init__"
        for each in stored
    )
    return None if is_changed or module.loop(init) is not None else method


def _draws_by_seeded_generator(module: SourceModule, loader: ast.Call, seeds: list[ast.Call]) -> bool:
    """Tell whether what is loaded draws by a generator that is seeded so, for each sample."""
    roots = {(module.home(each).qualify(each.func) or "").rpartition(".")[0] for each in seeds}
    owner = module.classes.of(data) if (data := argument(loader, 0, "dataset")) is not None else None
    parts = (
        [
            each
            for made in module.classes.lineage(owner)
            for each in made.body
            if getattr(each, "name", "") == "__getitem__"
        ]
        if owner
        else []
    )
    called = [
        (module.home(each).qualify(call.func) or "")
        for each in parts
        for call in module.inside(each, ast.Call)
    ]
    return any(each.rpartition(".")[0] in roots for each in called)


def _is_dataset_instantiated(module: SourceModule, owner: ast.ClassDef) -> bool:
    """Tell whether the program itself makes such a data set: else whoever does may load it by workers."""
    calls = (call for file in module.program.linked for call in file.all(ast.Call))
    return any(module.home(call).classes.named(call.func) is owner for call in calls)


def _can_have_loader_workers(files: list[SourceModule]) -> bool:
    """Tell whether any loader but Truestep's, which sets each sample's generators, is asked for workers."""
    return any(_requests_workers(file, call) for file in files for call in file.all(ast.Call))


def _requests_workers(module: SourceModule, call: ast.Call) -> bool:
    is_loader = module.qualify(call.func) == LOADER
    given = [word.value for word in call.keywords if (word.arg or "").endswith("workers")]
    given += call.args[5:6] if is_loader else []
    if is_loader and has_star_args(call):
        return True
    some = any(literal(module, each) != 0 for each in given)
    return some and module.classes.maker_of(call) != RUN
