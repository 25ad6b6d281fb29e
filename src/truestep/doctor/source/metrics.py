# SPDX-License-Identifier: Apache-2.0
"""Metrics that a training watches: under which names they are logged, and whether more of one is better.

A value tells it: a loss is to fall, the share of what was right is to rise. A name is asked where no value is in sight.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from truestep.doctor.source import kinds
from truestep.doctor.source.losses import constructor_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import argument, literal, value_origins

RISES, FALLS = "max", "min"

_AVERAGES = (
    "mean",
    "sum",
    "item",
    "compute",
    "float",
    "double",
    "detach",
    "cpu",
    "numpy",
    "to",
    "clone",
    "nanmean",
    "div",
)
_LOSSES = re.compile(r"^torch\.nn\.functional\.(\w+_loss|cross_entropy|binary_cross_entropy\w*|kl_div)$")
_LIBRARIES = ("torchmetrics.", "sklearn.metrics.", "ignite.metrics.", "pytorch_lightning.metrics.")
_RISING = re.compile(
    r"(^|_)(acc\d?|accuracy|top\d?|f1|fbeta|auc|auroc|roc|iou|miou|jaccard|dice|map|ap|precision|recall|bleu|rouge|psnr|ssim"
    r"|r2|kappa|mcc|reward|win)(_|$)"
)
_FALLING = re.compile(
    r"(^|_)(loss|nll|bce|mse|mae|rmse|mape|error|err|ppl|perplexity|wer|cer|fid|kld|lpips|elbo_loss)(_|$)"
)


@dataclass
class Logged:
    """What a program logs: values by their names, and whether there may be names that can't be seen."""

    values: dict[str, list[ast.expr]] = field(default_factory=dict)
    patterns: list[str] = field(default_factory=list)  # regular expressions of names that are put together
    is_whole: bool = True

    def may_be(self, name: str) -> bool:
        """Tell whether something may be logged under a name."""
        known = {
            name,
            name.removesuffix("_epoch"),
            name.removesuffix("_step"),
            name.partition("/dataloader_idx_")[0],
        }
        known_by_text = any(re.fullmatch(each, name) for each in self.patterns)
        return (
            not self.is_whole
            or bool(known & self.values.keys())
            or known_by_text
            or name in ("epoch", "step")
        )


def logged_by_modules(files: list[SourceModule]) -> Logged:
    """Return what the LightningModules of a program log; ask it by `module.of_program`."""
    found = Logged()
    for module in files:
        owners = module.classes_of_kind("lightning module")
        found.is_whole &= all(_is_in_sight(module, base) for owner in owners for base in owner.bases)
        for call in module.method_calls("log", "log_dict"):
            if not isinstance(call.func, ast.Attribute) or not _is_logger(module, call.func.value):
                continue
            if call.func.attr == "log":
                _note(module, found, argument(call, 0, "name"), argument(call, 1, "value"))
            else:
                _note_all(module, found, argument(call, 0, "dictionary"))
    return found


def _is_in_sight(module: SourceModule, base: ast.expr) -> bool:
    return module.class_named(base) is not None or kinds.of_base(module.qualify(base) or "") is not None


def _is_logger(module: SourceModule, node: ast.expr) -> bool:
    """Tell a LightningModule, and what a callback is handed as one; `wandb.log` and `self.logger.log` are others."""
    owner = module.class_of(node)
    if owner is not None:
        return module.class_kind(owner) == "lightning module"
    return isinstance(node, ast.Name) and node.id in ("pl_module", "self")


def _note(module: SourceModule, found: Logged, name: ast.expr | None, value: ast.expr | None) -> None:
    text = literal(module, name)
    if isinstance(text, str):
        found.values.setdefault(text, []).extend([value] if value is not None else [])
        return
    pattern = _pattern_of(module, name)
    if pattern is None:
        found.is_whole = False
    else:
        found.patterns.append(pattern)


def _note_all(module: SourceModule, found: Logged, given: ast.expr | None) -> None:
    """Note the items of a dict that is written out; one that is not may hold any name."""
    values = list(value_origins(module, given)) if given is not None else []
    scope = module.scope(given) if given is not None else None
    for value in values:
        if isinstance(value, ast.Dict) and None not in value.keys and not isinstance(given, ast.Name):
            for key, each in zip(value.keys, value.values, strict=True):
                _note(module, found, key, each)
        elif isinstance(value, ast.Dict) and isinstance(given, ast.Name):
            _note_written_out(
                module,
                found,
                value,
                [key for _, key, _ in module.index.items.get(scope, [])] if scope else [],
            )
        else:
            found.is_whole = False
    if not values:
        found.is_whole = False


def _note_written_out(module: SourceModule, found: Logged, value: ast.Dict, later: list[object]) -> None:
    """Note a dict that has a name: items may be added to it later."""
    for key, each in zip(value.keys, value.values, strict=True):
        _note(module, found, key, each)
    for added in later:
        found.values.setdefault(str(added), [])
    found.is_whole = False


def _pattern_of(module: SourceModule, name: ast.expr | None) -> str | None:
    """Return what `f"{stage}_loss"` and `stage + "_loss"` can be; None where nothing of it is fixed."""
    for _ in range(MAX_DEPTH):
        if not isinstance(name, ast.Name):
            break
        values = module.definitions(name)
        if len(values) != 1:
            return None
        name = values[0]
    match name:
        case ast.JoinedStr(values=parts):
            texts = [re.escape(str(each.value)) if isinstance(each, ast.Constant) else ".*" for each in parts]
            return "".join(texts)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            texts = [_pattern_of(module, each) or ".*" for each in (left, right)]
            return "".join(texts)
        case ast.Constant(value=str(text)):
            return re.escape(text)
    return None


def better_by_value(module: SourceModule, node: ast.expr | None, depth: int = 0) -> str | None:
    """Return whether a value is to rise or to fall, where every way to it says the same."""
    if node is None or depth > MAX_DEPTH:
        return None
    found = {_better(module, each, depth) for each in value_origins(module, node)}
    return found.pop() if len(found) == 1 else None


def _better(module: SourceModule, node: ast.expr | None, depth: int) -> str | None:
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            turned = {RISES: FALLS, FALLS: RISES}
            return turned.get(better_by_value(module, inner, depth + 1) or "")
        case ast.Compare(ops=[ast.Eq()]):
            return RISES
        case ast.BinOp(op=ast.Div() | ast.Mult(), left=left, right=right):
            of_left = better_by_value(module, left, depth + 1)
            return of_left or (
                better_by_value(module, right, depth + 1) if isinstance(node.op, ast.Mult) else None
            )
        case ast.Call():
            return _of_call(module, node, depth)
    return None


def _of_call(module: SourceModule, call: ast.Call, depth: int) -> str | None:
    name = module.qualify(call.func) or ""
    if _LOSSES.match(name) or (constructor_of(module, call) is not None and module.kind(call.func) == "loss"):
        return FALLS
    if name.startswith(_LIBRARIES):
        return better_by_name(_short(name))
    if name in ("torch.mean", "torch.sum", "float", "sum") and call.args:
        return better_by_value(module, call.args[0], depth + 1)
    if name in ("torch.eq",):
        return RISES
    metric = next(iter(_made_by_library(module, call.func)), None)
    if metric is not None:
        return better_by_name(metric)
    if isinstance(call.func, ast.Attribute):
        if call.func.attr == "eq":
            return RISES
        return better_by_value(module, call.func.value, depth + 1) if call.func.attr in _AVERAGES else None
    return None


def _made_by_library(module: SourceModule, called: ast.expr) -> Iterator[str]:
    """Yield the metric that an object was made as: `self.accuracy(...)`, of torchmetrics."""
    if isinstance(called, ast.Name | ast.Attribute):
        for each in value_origins(module, called):
            name = (module.qualify(each.func) or "") if isinstance(each, ast.Call) else ""
            if name.startswith(_LIBRARIES):
                yield _short(name)


def _short(name: str) -> str:
    """Turn torchmetrics.classification.BinaryF1Score into binary_f1_score, and AUROC into auroc."""
    last = name.rsplit(".", 1)[-1]
    last = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).lower()
    return re.sub(r"mean_absolute|mean_squared", "error", last).replace("mean_average_precision", "map")


def better_by_name(name: str) -> str | None:
    """Return whether what has this name is to rise or to fall; the last word that says so decides."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+", "_", name).lower()
    if _FALLING.search(words):
        return FALLS
    return RISES if _RISING.search(words) else None
