# SPDX-License-Identifier: Apache-2.0
"""The environment variables that change how training runs, with secrets hidden."""

import os
import re
from collections.abc import Mapping

from truestep.core.secret_values import hide_secret_variable

_RELEVANT = re.compile(
    r"(CUDA|CUDNN|CUBLAS|NCCL|NVIDIA|NVSHMEM|UCX|PYTORCH|TORCH|TORCHELASTIC|TORCHINDUCTOR|TRITON|GLOO|TP|"
    r"OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR|ATEN|HIP|ROCM|ROCR|HSA|MIOPEN|SLURM|OMPI|PMI|HF|WANDB|MLFLOW|TOKENIZERS|"
    r"TRUESTEP|PYTHON|CONDA|VIRTUAL_ENV|LD|MALLOC|PJRT|XLA|KUBERNETES|MASTER|LOCAL|GROUP|ROLE)(_.*)?"
    r"|RANK|WORLD_SIZE|PYTHON[A-Z]+|TRANSFORMERS_.*|DATASETS_.*|.*_PROXY|.*_proxy"
)


def read_environment_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the relevant variables by name, what could be a secret replaced by "(hidden)"."""
    return {
        name: hide_secret_variable(name, value)
        for name, value in sorted(environment.items())
        if _RELEVANT.fullmatch(name)
    }
