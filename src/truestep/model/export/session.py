# SPDX-License-Identifier: Apache-2.0
"""onnxruntime sessions whose providers are the ones that were asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from truestep.core.errors import OptionError, nearest_names
from truestep.core.extras import needs_extra

REMEDIES = {
    "CUDAExecutionProvider": "Install onnxruntime-gpu in place of onnxruntime (pip uninstall onnxruntime; pip install "
    "onnxruntime-gpu), with the CUDA and cuDNN that it was built for",
    "TensorrtExecutionProvider": "Install onnxruntime-gpu in place of onnxruntime, and TensorRT",
}


def open_onnx_session(path: Path, providers: Sequence[str] | None, threads: int | None) -> Any:
    """Return a session on exactly these providers, in this order; the CPU takes what they have no kernel for.

    Raises:
        OptionError: onnxruntime does not have a provider, or has it and could not start it: it would run on the CPU silently.
    """
    with needs_extra("onnx", "onnxruntime"):
        import onnxruntime
    wanted = list(providers or ["CPUExecutionProvider"])
    there = onnxruntime.get_available_providers()
    for name in wanted:
        if name not in there:
            raise OptionError(
                f"This onnxruntime {onnxruntime.__version__} has no {name}. {nearest_names(name, there)} {_remedy(name)}, or ask "
                "for the CPUExecutionProvider."
            )
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


def _remedy(name: str) -> str:
    return REMEDIES.get(name, f"Install the build of onnxruntime that has {name}")
