# SPDX-License-Identifier: Apache-2.0
"""Training for PyTorch in which every step is exact, and a doctor for the code you already have.

Every public name is listed in `_WHERE` and imported when it is first asked for, so that
`import truestep` costs next to nothing and works beside a broken torch, or none.
"""

from importlib import import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from truestep import nn as nn
    from truestep.doctor.block import watch as watch
    from truestep.engine.averages import EMA as EMA
    from truestep.engine.batches import Split as Split
    from truestep.engine.batches import split_along as split_along
    from truestep.engine.checkpoints.apply import apply_state as apply_state
    from truestep.engine.checkpoints.retention import Retention as Retention
    from truestep.engine.checkpoints.sources import read_checkpoint as read_checkpoint
    from truestep.engine.checkpoints.store import CheckpointStore as CheckpointStore
    from truestep.engine.checkpoints.weights import export_weights as export_weights
    from truestep.engine.checkpoints.weights import load_weights as load_weights
    from truestep.engine.choices import Choice as Choice
    from truestep.engine.clipping import Clip as Clip
    from truestep.engine.clipping import ClipAdaptive as ClipAdaptive
    from truestep.engine.clipping import ClipFunction as ClipFunction
    from truestep.engine.clipping import ClipNorm as ClipNorm
    from truestep.engine.clipping import ClipValue as ClipValue
    from truestep.engine.clipping.standalone import clip_gradients as clip_gradients
    from truestep.engine.data import BatchSource as BatchSource
    from truestep.engine.data import ByLength as ByLength
    from truestep.engine.data import DataOptions as DataOptions
    from truestep.engine.data import sample_rng as sample_rng
    from truestep.engine.learner import Learner as Learner
    from truestep.engine.losses import Weighted as Weighted
    from truestep.engine.losses import weighted as weighted
    from truestep.engine.optimizers import Parameters as Parameters
    from truestep.engine.optimizers import muon_with_adamw as muon_with_adamw
    from truestep.engine.precision import Precision as Precision
    from truestep.engine.precision.loss_scale import LossScale as LossScale
    from truestep.engine.schedules import one_cycle as one_cycle
    from truestep.engine.schedules import plateau as plateau
    from truestep.engine.schedules import warmup_constant as warmup_constant
    from truestep.engine.schedules import warmup_cosine as warmup_cosine
    from truestep.engine.schedules import warmup_inverse_sqrt as warmup_inverse_sqrt
    from truestep.engine.schedules import warmup_linear as warmup_linear
    from truestep.engine.step import Update as Update
    from truestep.engine.update import update as update
    from truestep.errors import BatchError as BatchError
    from truestep.errors import CheckpointError as CheckpointError
    from truestep.errors import DataError as DataError
    from truestep.errors import LossError as LossError
    from truestep.errors import NonFiniteError as NonFiniteError
    from truestep.errors import OptionError as OptionError
    from truestep.errors import RunDirectoryError as RunDirectoryError
    from truestep.errors import TruestepError as TruestepError
    from truestep.inspection.dtypes import dtypes as dtypes
    from truestep.inspection.environment import environment as environment
    from truestep.inspection.gpus import gpus as gpus
    from truestep.inspection.gpus.use import use_gpus as use_gpus
    from truestep.inspection.memory import free_memory as free_memory
    from truestep.inspection.memory import leftover_memory as leftover_memory
    from truestep.nn.arrays import from_numpy as from_numpy
    from truestep.nn.arrays import rounding as rounding
    from truestep.nn.arrays import to_numpy as to_numpy
    from truestep.nn.capturing import capture as capture
    from truestep.nn.defaults import defaults as defaults
    from truestep.nn.derivatives.jacobians import jacobian as jacobian
    from truestep.nn.derivatives.penalties import gradient_penalty as gradient_penalty
    from truestep.nn.derivatives.products import hvp as hvp
    from truestep.nn.derivatives.products import jvp as jvp
    from truestep.nn.derivatives.products import vjp as vjp
    from truestep.nn.freezing import freeze as freeze
    from truestep.nn.freezing import unfreeze as unfreeze
    from truestep.nn.named_axes.tensor import named as named
    from truestep.nn.seeds import seed_everything as seed_everything
    from truestep.run.options import Saving as Saving
    from truestep.run.report import write_report as write_report
    from truestep.run.run import Run as Run

_WHERE = {
    "apply_state": "truestep.engine.checkpoints.apply",
    "BatchError": "truestep.errors",
    "BatchSource": "truestep.engine.data",
    "ByLength": "truestep.engine.data",
    "capture": "truestep.nn.capturing",
    "CheckpointError": "truestep.errors",
    "CheckpointStore": "truestep.engine.checkpoints.store",
    "Choice": "truestep.engine.choices",
    "Clip": "truestep.engine.clipping",
    "clip_gradients": "truestep.engine.clipping.standalone",
    "ClipAdaptive": "truestep.engine.clipping",
    "ClipFunction": "truestep.engine.clipping",
    "ClipNorm": "truestep.engine.clipping",
    "ClipValue": "truestep.engine.clipping",
    "DataError": "truestep.errors",
    "DataOptions": "truestep.engine.data",
    "defaults": "truestep.nn.defaults",
    "dtypes": "truestep.inspection.dtypes",
    "EMA": "truestep.engine.averages",
    "environment": "truestep.inspection.environment",
    "export_weights": "truestep.engine.checkpoints.weights",
    "free_memory": "truestep.inspection.memory",
    "freeze": "truestep.nn.freezing",
    "from_numpy": "truestep.nn.arrays",
    "gpus": "truestep.inspection.gpus",
    "gradient_penalty": "truestep.nn.derivatives.penalties",
    "hvp": "truestep.nn.derivatives.products",
    "jacobian": "truestep.nn.derivatives.jacobians",
    "jvp": "truestep.nn.derivatives.products",
    "Learner": "truestep.engine.learner",
    "leftover_memory": "truestep.inspection.memory",
    "load_weights": "truestep.engine.checkpoints.weights",
    "LossError": "truestep.errors",
    "LossScale": "truestep.engine.precision.loss_scale",
    "muon_with_adamw": "truestep.engine.optimizers",
    "named": "truestep.nn.named_axes.tensor",
    "nn": "truestep",
    "NonFiniteError": "truestep.errors",
    "one_cycle": "truestep.engine.schedules",
    "OptionError": "truestep.errors",
    "Parameters": "truestep.engine.optimizers",
    "plateau": "truestep.engine.schedules",
    "Precision": "truestep.engine.precision",
    "read_checkpoint": "truestep.engine.checkpoints.sources",
    "Retention": "truestep.engine.checkpoints.retention",
    "rounding": "truestep.nn.arrays",
    "Run": "truestep.run.run",
    "RunDirectoryError": "truestep.errors",
    "sample_rng": "truestep.engine.data",
    "Saving": "truestep.run.options",
    "seed_everything": "truestep.nn.seeds",
    "Split": "truestep.engine.batches",
    "split_along": "truestep.engine.batches",
    "to_numpy": "truestep.nn.arrays",
    "TruestepError": "truestep.errors",
    "unfreeze": "truestep.nn.freezing",
    "Update": "truestep.engine.step",
    "update": "truestep.engine.update",
    "use_gpus": "truestep.inspection.gpus.use",
    "vjp": "truestep.nn.derivatives.products",
    "warmup_constant": "truestep.engine.schedules",
    "warmup_cosine": "truestep.engine.schedules",
    "warmup_inverse_sqrt": "truestep.engine.schedules",
    "warmup_linear": "truestep.engine.schedules",
    "watch": "truestep.doctor.block",
    "Weighted": "truestep.engine.losses",
    "weighted": "truestep.engine.losses",
    "write_report": "truestep.run.report",
}

__all__ = [  # noqa: RUF022  (alphabetical, whatever the case)
    "apply_state",
    "BatchError",
    "BatchSource",
    "ByLength",
    "capture",
    "CheckpointError",
    "CheckpointStore",
    "Choice",
    "Clip",
    "clip_gradients",
    "ClipAdaptive",
    "ClipFunction",
    "ClipNorm",
    "ClipValue",
    "DataError",
    "DataOptions",
    "defaults",
    "dtypes",
    "EMA",
    "environment",
    "export_weights",
    "free_memory",
    "freeze",
    "from_numpy",
    "gpus",
    "gradient_penalty",
    "hvp",
    "jacobian",
    "jvp",
    "Learner",
    "leftover_memory",
    "load_weights",
    "LossError",
    "LossScale",
    "muon_with_adamw",
    "named",
    "nn",
    "NonFiniteError",
    "one_cycle",
    "OptionError",
    "Parameters",
    "plateau",
    "Precision",
    "read_checkpoint",
    "Retention",
    "rounding",
    "Run",
    "RunDirectoryError",
    "sample_rng",
    "Saving",
    "seed_everything",
    "Split",
    "split_along",
    "to_numpy",
    "TruestepError",
    "unfreeze",
    "Update",
    "update",
    "use_gpus",
    "vjp",
    "warmup_constant",
    "warmup_cosine",
    "warmup_inverse_sqrt",
    "warmup_linear",
    "watch",
    "Weighted",
    "weighted",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version("truestep")
    if name not in _WHERE:
        raise AttributeError(f"module 'truestep' has no attribute {name!r}; it has: {', '.join(__all__)}")
    try:
        home = _WHERE[name]
        value = (
            import_module(f"truestep.{name}") if home == "truestep" else getattr(import_module(home), name)
        )
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"truestep.{name} needs PyTorch, missing here. Install it with: pip install 'truestep[torch]'",
            name="torch",
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
