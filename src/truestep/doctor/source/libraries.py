# SPDX-License-Identifier: Apache-2.0
"""What libraries do in the user's place: one table, which every check asks before it says that something is missing.

A row names a library, what of it has to be used, and the events of the protocol that it then takes care of.
"""

from dataclasses import dataclass
from pathlib import PurePath

from truestep.doctor.source.module import SourceModule

_LOOP = frozenset(("backward", "step", "zero_grad", "train", "eval", "no_grad", "set_epoch", "schedule"))


@dataclass(frozen=True)
class Library:
    """One library, by the beginning of its full names, and what it does of a training."""

    prefix: str
    names: tuple[str, ...]  # classes or functions of it, any of which takes over; none: an import is enough
    does: frozenset[str]


LIBRARIES = (
    Library("lightning", ("Trainer", "LightningModule"), _LOOP),
    Library("pytorch_lightning", ("Trainer", "LightningModule"), _LOOP),
    Library("lightning", ("Fabric",), frozenset(("set_epoch",))),
    Library("accelerate", ("Accelerator",), frozenset(("set_epoch",))),
    Library("transformers", ("Trainer", "Seq2SeqTrainer"), _LOOP),
    Library("trl", (), _LOOP),
    Library("timm", ("create_loader",), frozenset(("set_epoch",))),
    Library("ignite", ("Engine", "create_supervised_trainer", "auto_dataloader"), _LOOP),
    Library("deepspeed", ("initialize",), frozenset(("backward", "step", "zero_grad", "set_epoch"))),
    Library("fastai", (), _LOOP),
    Library("skorch", (), _LOOP),
    Library("mmengine", (), _LOOP),
    Library("mmcv", (), _LOOP),
    Library("catalyst", (), _LOOP),
    Library("composer", ("Trainer",), _LOOP),
    Library("detectron2", (), _LOOP),
    Library("apex", ("DistributedFusedAdam",), frozenset(("zero_grad",))),
)


def taken_over(module: SourceModule, event: str) -> str | None:
    """Return the library that may do this in the place of the user's code, somewhere in the program."""
    foreign = [each for each in LIBRARIES if not _is_own(module, each.prefix)]
    for file in module.linked:
        for imported in file.imported_names:
            for library in foreign:
                inside = imported == library.prefix or imported.startswith(f"{library.prefix}.")
                used = not library.names or any(name in file.own_identifiers for name in library.names)
                if inside and used and event in library.does:
                    return library.prefix
    return None


def _is_own(module: SourceModule, prefix: str) -> bool:
    """Tell whether the files that are read are the library itself: then what it does is in sight."""
    return any(prefix in PurePath(file.path).parts[:-1] for file in module.linked)
