# SPDX-License-Identifier: Apache-2.0
"""`ts.export_onnx`: a model as an ONNX file, checked in onnxruntime against torch at two batch sizes."""

import inspect
import io
import logging
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from truestep.core.errors import ModelError, OptionError, explain_missing_extra, names_hint
from truestep.core.module_inspection import as_module
from truestep.core.result_display import RenderableType, Result
from truestep.core.text_formatting import bytes_text, error_line
from truestep.model.calling import (
    Arguments,
    forward_arguments,
    map_forward_arguments,
    preserve_model_state,
    run_forward,
    tensors_in_structure,
)

REMEDIES = {
    "CUDAExecutionProvider": "Install onnxruntime-gpu in place of onnxruntime (pip uninstall onnxruntime; pip install "
    "onnxruntime-gpu), with the CUDA and cuDNN that it was built for",
    "TensorrtExecutionProvider": "Install onnxruntime-gpu in place of onnxruntime, and TensorRT",
}


TOLERANCE = 1e-3  # of the largest output: float32 sums in another order, with room


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One batch run by torch and by onnxruntime."""

    batch_size: int | None  # None where inputs have no batch axis in common
    largest_difference: float
    largest_output: float


@dataclass(frozen=True, kw_only=True)
class OnnxExport(Result):
    """What was written, where it runs, and how far onnxruntime's outputs are from torch's."""

    path: str
    size_bytes: int
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    providers_asked: tuple[str, ...]
    providers_got: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    has_dynamic_batch: bool

    @property
    def agrees(self) -> bool:
        """Whether every difference is of the size of rounding."""
        return all(
            each.largest_difference <= TOLERANCE * max(1.0, each.largest_output) for each in self.comparisons
        )

    def __rich__(self) -> RenderableType:
        from truestep.core.rich_imports import Text

        lines = [
            f"{self.path}: {bytes_text(self.size_bytes)}, opset {self.opset}",
            f"inputs {', '.join(self.inputs)}; outputs {', '.join(self.outputs)}",
            f"providers asked {', '.join(self.providers_asked)}; got {', '.join(self.providers_got)}",
        ]
        lines += [
            f"batch of {each.batch_size}: largest difference from torch {each.largest_difference:.2g}, largest output "
            f"{each.largest_output:.2g}"
            for each in self.comparisons
        ]
        text = Text("\n".join(lines))
        if not self.agrees:
            text.append("\nonnxruntime does not give what torch gives: don't use this file.", "bold red")
        return text


def export_onnx(
    model: object,
    batch: Any,
    path: str | Path,
    *,
    dynamic_batch: bool = True,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> OnnxExport:
    """Export a module (or a learner) in eval mode with torch's exporter, then run the file beside torch at two batch sizes.

    Modes, statistics and random state are found again as they were. Needs the extra `[onnx]`.

    Args:
        model: the module.
        batch: an example of what its forward takes: a tensor, a tuple of arguments, a dict of them by name.
        path: the file to write; it ends in .onnx.
        dynamic_batch: whether the first axis of every input may have any size.
        providers: onnxruntime's, in order of preference (default: the CPU). One that is not got is an error.
        threads: of onnxruntime within an operator.

    Raises:
        ModelError: the forward fails, or can't be exported; the message has torch's reason.
        OptionError: a provider that this onnxruntime does not have or could not start.
        MissingPackageError: the extra is not installed.
    """
    with explain_missing_extra("onnx", "onnx", "onnxscript", "onnxruntime"):
        import onnx
        import onnxruntime  # noqa: F401 - before the work, not after it
        import onnxscript  # noqa: F401
    path = Path(path)
    if path.suffix != ".onnx" or not path.parent.is_dir() or path.is_dir():
        raise OptionError(f"{path} can't be written: name a file ending in .onnx, in a folder that is there.")
    wanted = _check_available_providers(providers)
    module = as_module(model, "ts.export_onnx")
    arguments = forward_arguments(module, batch)
    with preserve_model_state(module):
        module.eval()
        run_forward(module, arguments)
        _export_to_onnx(module, arguments, path, dynamic_batch=dynamic_batch)
        session = open_onnx_session(path, wanted, threads)
        comparisons = [_compare_outputs(module, arguments, session)]
        if dynamic_batch:
            comparisons.append(_compare_outputs(module, map_forward_arguments(arguments, _doubled), session))
    opsets = onnx.load(str(path), load_external_data=False).opset_import
    return OnnxExport(
        path=str(path),
        size_bytes=sum(each.stat().st_size for each in (path, Path(f"{path}.data")) if each.exists()),
        opset=next(each.version for each in opsets if not each.domain),
        inputs=tuple(f"{each.name} {each.shape}" for each in session.get_inputs()),
        outputs=tuple(f"{each.name} {each.shape}" for each in session.get_outputs()),
        providers_asked=tuple(wanted),
        providers_got=tuple(session.get_providers()),
        comparisons=tuple(comparisons),
        has_dynamic_batch=dynamic_batch,
    )


def _export_to_onnx(module: nn.Module, arguments: Arguments, path: Path, *, dynamic_batch: bool) -> None:
    args, kwargs = map_forward_arguments(arguments, _ensure_two_rows) if dynamic_batch else arguments
    # The exporter wants those of positional arguments by their names, too.
    by_name = {**inspect.signature(module.forward).bind_partial(*args).arguments, **kwargs}
    dynamic = pytree.tree_map(_dynamic_first_axis, by_name) if dynamic_batch else None
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")  # the exporter's own, about its inner parts, as what it prints
            torch.onnx.export(
                module, args, str(path), kwargs=kwargs, dynamo=True, dynamic_shapes=dynamic, verbose=False
            )
    except Exception as error:
        raise ModelError(
            f"{type(module).__name__} can't be exported. {_innermost_reason(error)} Control flow that depends on values, and calls "
            "into other libraries, have no place in a graph: rewrite them with torch.where or torch.cond, or export the "
            "part without them."
        ) from error
    finally:
        logging.disable(level)


def _dynamic_first_axis(value: Any) -> Any:
    return {0: torch.export.Dim.DYNAMIC} if isinstance(value, Tensor) and value.dim() else None


def _ensure_two_rows(tensor: Tensor) -> Tensor:
    """An example of one row would be taken for a size that never changes."""
    return torch.cat([tensor, tensor]) if tensor.dim() and len(tensor) == 1 else tensor


def _doubled(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, tensor]) if tensor.dim() else tensor


def _innermost_reason(error: BaseException) -> str:
    """Return the first line that says something, of the innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error_line(error)[:300]


def _compare_outputs(module: nn.Module, arguments: Arguments, session: Any) -> Comparison:
    expected = [each.detach().cpu() for each in tensors_in_structure(run_forward(module, arguments))]
    given = tensors_in_structure(arguments)
    feed = {
        # The exporter keeps the order of the tensors, whatever nesting they came in.
        wanted.name: tensor.detach().cpu().numpy()
        for wanted, tensor in zip(session.get_inputs(), given, strict=True)
    }
    got = [torch.from_numpy(each) for each in session.run(None, feed)]
    if [each.shape for each in got] != [each.shape for each in expected]:
        shapes = [[list(each.shape) for each in side] for side in (got, expected)]
        raise ModelError(
            f"onnxruntime gives shapes {shapes[0]} where torch gives {shapes[1]}: the model fixes a size of the "
            "example batch. Look for int(), .item() and len() in its forward."
        )
    pairs = [(a.double(), b.double()) for a, b in zip(got, expected, strict=True) if a.numel()]
    # Inputs without a batch axis in common have no one size to tell.
    sizes = {len(each) for each in given if each.dim()}
    return Comparison(
        batch_size=sizes.pop() if len(sizes) == 1 else None,
        largest_difference=_largest_absolute_output([a - b for a, b in pairs]),
        largest_output=_largest_absolute_output([b for _, b in pairs]),
    )


def _largest_absolute_output(outputs: Sequence[Tensor]) -> float:
    # Python's max() passes over a NaN that is not the first, and the file would seem to agree.
    return float(torch.stack([each.abs().max() for each in outputs]).max()) if outputs else 0.0


def open_onnx_session(path: Path, providers: Sequence[str] | None, threads: int | None) -> Any:
    """Return a session on exactly these providers, in this order; the CPU takes what they have no kernel for.

    Raises:
        OptionError: onnxruntime does not have a provider, or has it and could not start it: it would run on the CPU silently.
    """
    wanted = _check_available_providers(providers)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # its warnings about providers are answered below
    if threads is not None:
        options.intra_op_num_threads = threads
    with_cpu = list(dict.fromkeys([*wanted, "CPUExecutionProvider"]))
    session = onnxruntime.InferenceSession(str(path), options, providers=with_cpu)
    got = session.get_providers()
    for name in wanted:
        if name not in got:
            raise OptionError(
                f"onnxruntime was asked for {name} and got {', '.join(got)}: the model would run there silently. {_remedy(name)}."
            )
    return session


def _check_available_providers(providers: Sequence[str] | None) -> list[str]:
    """Return the providers to open a session on, all of which this onnxruntime has."""
    with explain_missing_extra("onnx", "onnxruntime"):
        import onnxruntime
    wanted = list(providers or ["CPUExecutionProvider"])
    there = onnxruntime.get_available_providers()
    for name in wanted:
        if name not in there:
            raise OptionError(
                f"This onnxruntime {onnxruntime.__version__} has no {name}. {names_hint(name, there)} {_remedy(name)}, or ask "
                "for the CPUExecutionProvider."
            )
    return wanted


def _remedy(name: str) -> str:
    return REMEDIES.get(name, f"Install the build of onnxruntime that has {name}")
