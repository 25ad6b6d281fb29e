# SPDX-License-Identifier: Apache-2.0
"""The environment variables that change how training runs, with secrets hidden."""

import os
import re
from collections.abc import Mapping

HIDDEN = "(hidden)"
_RELEVANT = re.compile(
    r"(CUDA|CUDNN|CUBLAS|NCCL|NVIDIA|NVSHMEM|UCX|PYTORCH|TORCH|TORCHELASTIC|TORCHINDUCTOR|TRITON|GLOO|TP|"
    r"OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR|ATEN|HIP|ROCM|ROCR|HSA|MIOPEN|SLURM|OMPI|PMI|HF|WANDB|MLFLOW|TOKENIZERS|"
    r"TRUESTEP|PYTHON|CONDA|VIRTUAL_ENV|LD|MALLOC|PJRT|XLA|KUBERNETES|MASTER|LOCAL|GROUP|ROLE)(_.*)?"
    r"|RANK|WORLD_SIZE|PYTHON[A-Z]+|TRANSFORMERS_.*|DATASETS_.*|.*_PROXY|.*_proxy"
)
_SECRET_WORDS = {
    "TOKEN",
    "KEY",
    "APIKEY",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASS",
    "PWD",
    "CREDENTIAL",
    "CREDENTIALS",
    "AUTH",
    "COOKIE",
    "PRIVATE",
    "SIGNATURE",
}
_SECRET_VALUE = re.compile(
    r"\b(hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[bp]-|AKIA|eyJ)[\w.-]{8,}|\b[0-9a-f]{40}\b"
)
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")


def read_environment_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the relevant variables by name, what could be a secret replaced by "(hidden)"."""
    return {
        name: hide_secret_variable(name, value)
        for name, value in sorted(environment.items())
        if _RELEVANT.fullmatch(name)
    }


def hide_secret_variable(name: str, value: str) -> str:
    """Return `value`, or "(hidden)" where name or value look like a secret; logins in addresses go too."""
    words = set(re.split(r"[_\W]+", name.upper()))
    if value and (words & _SECRET_WORDS or _SECRET_VALUE.search(value)):
        return HIDDEN
    return _LOGIN.sub(f"{HIDDEN}@", value)
