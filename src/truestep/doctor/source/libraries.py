# SPDX-License-Identifier: Apache-2.0
"""What libraries do in the user's place: one table, which every check asks before it says that something is missing.

A row names a library, what of it has to be used, and the events of the protocol that it then takes care of.
"""

import ast
from dataclasses import dataclass
from pathlib import PurePath

from truestep.doctor.source.cached_questions import imported_names, own_identifiers
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.value_origins import constant

_LOOP = frozenset(("backward", "step", "zero_grad", "train", "eval", "no_grad", "set_epoch", "schedule"))


@dataclass(frozen=True)
class TrainingLibrary:
    """One library, by the beginning of its full names, and what it does of a training."""

    prefix: str
    names: tuple[str, ...]  # classes or functions of it, any of which takes over; none: an import is enough
    does: frozenset[str]


LIBRARIES = (
    TrainingLibrary("lightning", ("Trainer", "LightningModule"), _LOOP),
    TrainingLibrary("pytorch_lightning", ("Trainer", "LightningModule"), _LOOP),
    TrainingLibrary("lightning", ("Fabric",), frozenset(("set_epoch",))),
    TrainingLibrary("accelerate", ("Accelerator",), frozenset(("set_epoch",))),
    TrainingLibrary("transformers", ("Trainer", "Seq2SeqTrainer"), _LOOP),
    TrainingLibrary("trl", (), _LOOP),
    TrainingLibrary("timm", ("create_loader",), frozenset(("set_epoch",))),
    TrainingLibrary("ignite", ("Engine", "create_supervised_trainer", "auto_dataloader"), _LOOP),
    TrainingLibrary("deepspeed", ("initialize",), frozenset(("backward", "step", "zero_grad", "set_epoch"))),
    TrainingLibrary("fastai", (), _LOOP),
    TrainingLibrary("skorch", (), _LOOP),
    TrainingLibrary("mmengine", (), _LOOP),
    TrainingLibrary("mmcv", (), _LOOP),
    TrainingLibrary("catalyst", (), _LOOP),
    TrainingLibrary("composer", ("Trainer",), _LOOP),
    TrainingLibrary("detectron2", (), _LOOP),
    TrainingLibrary("apex", ("DistributedFusedAdam",), frozenset(("zero_grad",))),
)

# The methods that a library asks for the loaders it goes through, by the kind of their class and by what it does there;
_LOADING = {
    "trained": ("train_dataloader",),
    "evaluated": ("val_dataloader", "test_dataloader"),
}
LOADERS_ASKED = {"lightning module": _LOADING, "lightning data module": _LOADING}
# and where it is given them: position and name
LOADERS_GIVEN: dict[str, dict[str, tuple[int, str]]] = {
    "fit": {"trained": (1, "train_dataloaders"), "evaluated": (2, "val_dataloaders")},
    "validate": {"evaluated": (1, "dataloaders")},
    "test": {"evaluated": (1, "dataloaders")},
}


TRAINERS = ("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer")

# The methods that give the numbers of the epochs, as range() would, by the class whose they are.
EPOCHS_OF = {"epochs": "truestep.Run"}

# The methods whose result a library takes backward itself, as long as this attribute does not say otherwise.
_LOSSES = {"lightning module": ("training_step", "automatic_optimization"), "trainer": ("compute_loss", "")}


def gives_loss(module: SourceModule, function: ast.AST) -> bool:
    """Tell whether a library takes the result of this method backward."""
    owner = module.resolver.index.parents.get(function)
    if not isinstance(owner, ast.ClassDef):
        return False
    name, switch = _LOSSES.get(module.kinds.of_class(owner) or "", ("", ""))
    return (
        bool(name) and getattr(function, "name", "") == name and not has_class_switch(module, owner, switch)
    )


def losses_given_back(module: SourceModule, function: Function) -> list[ast.expr]:
    """Return what a library takes backward of a method's results: each itself, the first of a tuple, an item of a dict."""
    found: list[ast.expr] = []
    waiting = module.functions.results(function) if gives_loss(module, function) else []
    while waiting:
        match each := waiting.pop(0):
            case ast.IfExp():
                waiting += [each.body, each.orelse]
            case ast.Tuple(elts=[first, *_]):
                waiting.append(first)
            case ast.Dict():
                pairs = zip(each.keys, each.values, strict=True)
                waiting += [value for key, value in pairs if constant(key) == "loss"]
            case _:
                found.append(each)
    return found


def has_class_switch(module: SourceModule, owner: ast.ClassDef, switch: str) -> bool:
    """Tell whether a class or one of its bases sets this attribute."""
    return any(switch in module.classes.attributes(each) for each in module.classes.lineage(owner))


def library_taking_over(module: SourceModule, event: str) -> str | None:
    """Return the library that may do this in the place of the user's code, somewhere in the program."""
    return next((each.prefix for each in module.program.answer(_used_libraries) if event in each.does), None)


def _used_libraries(files: list[SourceModule]) -> list[TrainingLibrary]:
    """Return the libraries that a program uses; of one that is read itself, what it does is in sight."""
    folders = {part for file in files for part in PurePath(file.path).parts[:-1]}
    return [
        library
        for file in files
        for library in LIBRARIES
        if library.prefix not in folders and _is_library_used(file, library)
    ]


def _is_library_used(file: SourceModule, library: TrainingLibrary) -> bool:
    inside = any(
        each == library.prefix or each.startswith(f"{library.prefix}.") for each in imported_names(file)
    )
    return inside and (not library.names or any(name in own_identifiers(file) for name in library.names))
