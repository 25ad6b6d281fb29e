# SPDX-License-Identifier: Apache-2.0
"""What sort of thing a constructor makes, and what a name suggests where nothing else is known."""

import re
from functools import lru_cache

# Frameworks of their own: what they make is none of torch's objects, whatever its name or its methods suggest.
FRAMEWORKS = frozenset((
    "chainer", "flax", "jax", "jittor", "keras", "megengine", "mindspore", "mlx", "mxnet", "oneflow", "paddle", "tensorflow",
    "tinygrad",
))  # fmt: skip
FOREIGN = FRAMEWORKS | {
    "catboost", "cupy", "cv2", "lightgbm", "numpy", "optax", "pandas", "PIL", "scipy", "sklearn", "xgboost"
}  # fmt: skip
WITH_FIELDS = ("dataclass", "define", "BaseModel", "NamedTuple", "PretrainedConfig")  # classes of options


def _kind_patterns(*rows: tuple[str, str]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(pattern), kind) for kind, pattern in rows]


_BY_CONSTRUCTOR = _kind_patterns(
    ("scheduler", r"^torch\.optim\.lr_scheduler\.\w+$"),
    ("optimizer", r"^torch\.optim\.[A-Z]\w+$"),
    ("optimizer", r"^(apex\.optimizers|bitsandbytes\.optim|transformers\.optimization)\.[A-Z]\w+$"),
    ("optimizer", r"^transformers\.(AdamW|Adafactor)$"),
    ("scheduler", r"^transformers\.get_\w*schedule\w*$"),
    ("scaler", r"^torch\.(amp|cuda\.amp)\.GradScaler$"),
    ("loss", r"^torch\.nn\.\w+Loss$"),
    ("loader", r"^torch\.utils\.data\.DataLoader$"),
    ("distributed sampler", r"^torch\.utils\.data\.DistributedSampler$"),
    ("sampler", r"^torch\.utils\.data\.\w*Sampler$"),
    ("dataset", r"^torch\.utils\.data\.\w*(Dataset|Subset)$|^torchvision\.datasets\.\w+$"),
    ("ddp", r"^torch\.nn\.parallel\.DistributedDataParallel$"),
    ("module", r"^torch\.nn\.parallel\.DataParallel$"),
    ("module", r"^torch\.nn\.(?!(Uninitialized)?(Parameter|Buffer)$)[A-Z]\w+$|^torchvision\.models\.\w+$"),
    ("module", r"^torch\.nn\.SyncBatchNorm\.convert_sync_batchnorm$|^torch\.compile$"),
    ("lightning trainer", r"^(pytorch_lightning|lightning(\.pytorch)?)(\.trainer(\.\w+)?)?\.Trainer$"),
)  # fmt: skip

_BY_BASE = _kind_patterns(
    ("loss", r"^torch\.nn\.(\w*Loss|modules\.loss\.\w+)$"),
    ("module", r"^torch\.nn\.(?!(Uninitialized)?(Parameter|Buffer)$)[A-Z]\w+$"),
    ("iterable dataset", r"^torch\.utils\.data\.IterableDataset$"),
    ("dataset", r"^torch\.utils\.data\.Dataset$"),
    ("scheduler", r"^torch\.optim\.lr_scheduler\.\w+$"),
    ("optimizer", r"^torch\.optim\.(Optimizer|[A-Z]\w+)$"),
    ("lightning module", r"^(pytorch_lightning|lightning(\.pytorch)?)(\.core(\.\w+)?)?\.LightningModule$"),
    ("lightning data module", r"^(pytorch_lightning|lightning(\.pytorch)?)(\.core(\.\w+)?)?\.LightningDataModule$"),
    ("trainer", r"^transformers\.\w*Trainer$"),
)  # fmt: skip

# What a method of an object of these kinds gives, or of one that this constructor made.
_BY_METHOD = {
    ("lightning module", "optimizers"): "optimizer",
    ("lightning module", "lr_schedulers"): "scheduler",
}
# A module under another name, or by a handle that applies it: the first argument is the module.
SAME_MODULE = ("torch.compile", "torch.nn.SyncBatchNorm.convert_sync_batchnorm")
HANDLES = {"learner": ("truestep.Run", "modules")}  # method: the class whose it is, and the argument's name

# Methods and attributes that tell what an object is where nothing shows how it was made.
USES = {
    "optimizer": ("zero_grad", "param_groups", "add_param_group"),
    "module": ("parameters", "named_parameters", "train", "eval", "modules"),
    "ddp": ("parameters", "named_parameters", "train", "eval", "modules", "no_sync"),
    "scheduler": ("get_last_lr", "get_lr", "last_epoch"),
    "scaler": ("unscale_", "get_scale", "scale"),
    "loader": ("dataset", "batch_size", "sampler"),
}

_REMEMBERED = 4_096  # names for which the patterns need not be tried again

# Only where a value's origin is out of sight (a parameter, an import): the field's own habits.
_BY_NAME = _kind_patterns(
    ("scheduler", r"(?i)^(lr_?)?sched(uler)?s?(_\w+)?$|_sched(uler)?$"),
    ("scaler", r"(?i)^(grad_?)?scaler$"),
    ("optimizer", (r"^(opt|optim|optimi[sz]er|Optimizer|OPT)s?(\d+|_?[A-Za-z]|_(?!level|type|name|args)\w+)?$"
                   r"|_opt(im(i[sz]er)?)?$")),
    ("loss", r"(?i)^(crit|criterion|loss_fn|loss_func|loss_function)(_\w+)?$|_criterion$"),
    ("loader", r"(?i)^\w*(data_?)?loader$"),
    ("ddp", r"(?i)^(ddp|ddp_model|ddp_net)$"),
    ("module", (r"^(net|network|model|generator|discriminator|critic|classifier|encoder|decoder)"
                r"(\d+|_?[A-Za-z]|_?(ema|teacher|student|ref|old|new|target|online|main|base|without_ddp))?$"
                r"|^(?!(get|build|make|create|load|init|setup|prepare|define|save|train|test|eval)_)\w*_(net|model)$")),
)  # fmt: skip


@lru_cache(_REMEMBERED)
def kind_of_constructor(qualified: str) -> str | None:
    """Return what calling this qualified name makes."""
    return next((kind for pattern, kind in _BY_CONSTRUCTOR if pattern.match(qualified)), None)


def is_known_method(method: str) -> bool:
    """Tell whether a method of this name gives something known on some kind of object."""
    return any(method == each for _, each in _BY_METHOD)


def kind_given_by_method(kind: str, method: str) -> str | None:
    """Return what a method of an object of this kind gives, be it one of several."""
    return _BY_METHOD.get((kind, method))


@lru_cache(_REMEMBERED)
def kind_of_subclass(qualified: str) -> str | None:
    """Return what an instance of a subclass of this class is."""
    return next((kind for pattern, kind in _BY_BASE if pattern.match(qualified)), None)


@lru_cache(_REMEMBERED)
def kind_suggested_by_name(name: str) -> str | None:
    """Return what a bare name suggests."""
    return next((kind for pattern, kind in _BY_NAME if pattern.search(name)), None)


def agreed_kinds(known: set[str | None]) -> set[str | None]:
    """Return the kinds of a name's values; another framework's beside torch's optimizer counts for nothing."""
    return {"optimizer"} if known == {"optimizer", None} else known
