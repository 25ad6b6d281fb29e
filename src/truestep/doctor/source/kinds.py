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
MODES = {"train": True, "eval": False}

_BY_CONSTRUCTOR = [
    (re.compile(r"^torch\.optim\.lr_scheduler\.\w+$"), "scheduler"),
    (re.compile(r"^torch\.optim\.[A-Z]\w+$"), "optimizer"),
    (
        re.compile(r"^(apex\.optimizers|bitsandbytes\.optim|transformers\.optimization)\.[A-Z]\w+$"),
        "optimizer",
    ),
    (re.compile(r"^transformers\.(AdamW|Adafactor)$"), "optimizer"),
    (re.compile(r"^transformers\.get_\w*schedule\w*$"), "scheduler"),
    (re.compile(r"^torch\.(amp|cuda\.amp)\.GradScaler$"), "scaler"),
    (re.compile(r"^torch\.nn\.\w+Loss$"), "loss"),
    (re.compile(r"^torch\.utils\.data\.DataLoader$"), "loader"),
    (re.compile(r"^torch\.utils\.data\.DistributedSampler$"), "distributed sampler"),
    (re.compile(r"^torch\.utils\.data\.\w*Sampler$"), "sampler"),
    (re.compile(r"^torch\.utils\.data\.\w*(Dataset|Subset)$|^torchvision\.datasets\.\w+$"), "dataset"),
    (re.compile(r"^torch\.nn\.parallel\.DistributedDataParallel$"), "ddp"),
    (re.compile(r"^torch\.nn\.parallel\.DataParallel$"), "module"),
    (
        re.compile(
            r"^torch\.nn\.(?!(Uninitialized)?(Parameter|Buffer)$)[A-Z]\w+$|^torchvision\.models\.\w+$"
        ),
        "module",
    ),
    (re.compile(r"^torch\.nn\.SyncBatchNorm\.convert_sync_batchnorm$|^torch\.compile$"), "module"),
    (re.compile(r"^transformers\.\w+\.from_pretrained$"), "pretrained"),
    (
        re.compile(r"^(pytorch_lightning|lightning(\.pytorch)?)(\.trainer(\.\w+)?)?\.Trainer$"),
        "lightning trainer",
    ),
]

_BY_BASE = [
    (re.compile(r"^torch\.nn\.(\w*Loss|modules\.loss\.\w+)$"), "loss"),
    (re.compile(r"^torch\.nn\.(?!(Uninitialized)?(Parameter|Buffer)$)[A-Z]\w+$"), "module"),
    (re.compile(r"^torch\.utils\.data\.IterableDataset$"), "iterable dataset"),
    (re.compile(r"^torch\.utils\.data\.Dataset$"), "dataset"),
    (re.compile(r"^torch\.optim\.lr_scheduler\.\w+$"), "scheduler"),
    (re.compile(r"^torch\.optim\.(Optimizer|[A-Z]\w+)$"), "optimizer"),
    (
        re.compile(r"^(pytorch_lightning|lightning(\.pytorch)?)(\.core(\.\w+)?)?\.LightningModule$"),
        "lightning module",
    ),
    (
        re.compile(r"^(pytorch_lightning|lightning(\.pytorch)?)(\.core(\.\w+)?)?\.LightningDataModule$"),
        "lightning data module",
    ),
    (re.compile(r"^transformers\.\w*Trainer$"), "trainer"),
]

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
_BY_NAME = [
    (re.compile(r"^(lr_?)?sched(uler)?s?(_\w+)?$|_sched(uler)?$", re.I), "scheduler"),
    (re.compile(r"^(grad_?)?scaler$", re.I), "scaler"),
    (
        re.compile(
            r"^(opt|optim|optimi[sz]er|Optimizer|OPT)s?(\d+|_?[A-Za-z]|_(?!level|type|name|args)\w+)?$|_opt(im(i[sz]er)?)?$"
        ),
        "optimizer",
    ),
    (re.compile(r"^(crit|criterion|loss_fn|loss_func|loss_function)(_\w+)?$|_criterion$", re.I), "loss"),
    (re.compile(r"^\w*(data_?)?loader$", re.I), "loader"),
    (re.compile(r"^(ddp|ddp_model|ddp_net)$", re.I), "ddp"),
    (
        re.compile(
            r"^(net|network|model|generator|discriminator|critic|classifier|encoder|decoder)"
            r"(\d+|_?[A-Za-z]|_?(ema|teacher|student|ref|old|new|target|online|main|base|without_ddp))?$"
            r"|^(?!(get|build|make|create|load|init|setup|prepare|define|save|train|test|eval)_)\w*_(net|model)$"
        ),
        "module",
    ),
]


@lru_cache(_REMEMBERED)
def of_constructor(qualified: str) -> str | None:
    """Return what calling this qualified name makes."""
    return next((kind for pattern, kind in _BY_CONSTRUCTOR if pattern.match(qualified)), None)


def is_giving(method: str) -> bool:
    """Tell whether a method of this name gives something known on some kind of object."""
    return any(method == each for _, each in _BY_METHOD)


def of_method(kind: str, method: str) -> str | None:
    """Return what a method of an object of this kind gives, be it one of several."""
    return _BY_METHOD.get((kind, method))


@lru_cache(_REMEMBERED)
def of_base(qualified: str) -> str | None:
    """Return what an instance of a subclass of this class is."""
    return next((kind for pattern, kind in _BY_BASE if pattern.match(qualified)), None)


@lru_cache(_REMEMBERED)
def of_name(name: str) -> str | None:
    """Return what a bare name suggests."""
    return next((kind for pattern, kind in _BY_NAME if pattern.search(name)), None)


def agreed(known: set[str | None]) -> set[str | None]:
    """Return the kinds of a name's values; another framework's beside torch's optimizer counts for nothing."""
    return {"optimizer"} if known == {"optimizer", None} else known
