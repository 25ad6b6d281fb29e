# SPDX-License-Identifier: Apache-2.0
"""What the bits of a run depend on besides its code and data, and what a resumed run can promise."""

import platform
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truestep.core.command_line_redaction import hide_command_secrets, split_command_options
from truestep.core.device_specific import gpu_name_and_versions
from truestep.core.secret_values import Hide
from truestep.engine.automatic_choice import Choice
from truestep.run.user_source_files import CODE_OF_PROCESS, compare_own_code, path_of_main_script

EXACT = "bit-identical"
ROUNDED = "the same samples and random numbers with other rounding"
OTHER = "what the code now makes of it, not what it would have been"
WEAKER = "no more than its data can promise"
IF_NOTHING_OUTSIDE = "if the loop keeps nothing in variables or attributes"
NOT_COMPARED = "other packages, files, environment"
_NO_FACTS = {"python", "code", "arguments", "went_on"}  # compared otherwise, or not at all


def run_fingerprint(device: torch.device, hide: Hide) -> dict[str, Any]:
    """Return versions, device, threads, numerical flags the script's arguments without
    secrets, and hashes of the user's own source as JSON."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "device": device.type,
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "default_dtype": str(torch.get_default_dtype()),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_tf32": _is_cudnn_tf32_allowed(),
        "float32_matmul_precision": _matmul_precision(),
        "code": CODE_OF_PROCESS.hashes(),
        "arguments": script_arguments(hide),
    }
    return facts | gpu_name_and_versions(device)


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses to answer once the newer per-backend settings were used
        return str(torch.backends.fp32_precision)  # type: ignore[attr-defined]


def _is_cudnn_tf32_allowed() -> bool | str:
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # convolutions and recurrent layers were set apart
        cudnn: Any = torch.backends.cudnn
        return f"{cudnn.conv.fp32_precision}, {cudnn.rnn.fp32_precision}"


def resume_exactness_sentence(
    saved: dict[str, Any], now: dict[str, Any], choices: Sequence[Choice], code: Sequence[str] = ()
) -> str:
    """Return what a run resumed here promises, and why, in one sentence; `code` says what it now decides otherwise.

    The user's own source and the script's arguments are compared too, and what nobody compared is named the first time.
    """
    source = compare_own_code(saved.get("code", {}))
    arguments = changed_arguments(saved.get("arguments"), now["arguments"])
    if edits := [*code, *source.changed, *arguments]:
        return f"{OTHER} ({'; '.join(edits)})"
    weaker = [f"{choice.name}: {choice.value}" for choice in choices if choice.weakens]
    if weaker:
        return f"{WEAKER} ({'; '.join(weaker)})"
    changed = [
        f"{key} was {saved.get(key)}, is {now.get(key)}"
        for key in sorted((saved.keys() | now.keys()) - _NO_FACTS)
        if saved.get(key) != now.get(key)
    ]
    if changed:
        return f"{ROUNDED} ({'; '.join(changed)}), {IF_NOTHING_OUTSIDE}"
    if now["device"] != "cpu" and not now["deterministic_algorithms"]:
        reason = "the GPU may pick other algorithms; ts.Run(deterministic=True) prevents it"
        return f"{ROUNDED} ({reason}), {IF_NOTHING_OUTSIDE}"
    unknown = ", ".join(source.unknown if saved.get("went_on") else [*source.unknown, NOT_COMPARED])
    kept = "" if saved.get("went_on") else "run.state does"
    more = "; ".join(filter(None, [kept, unknown and f"not compared: {unknown}"]))
    return f"{EXACT}, {IF_NOTHING_OUTSIDE}" + (f" ({more})" if more else "")


_LOCAL_RANK = re.compile(r"--local[_-]rank\b")  # what `python -m torch.distributed.launch` adds
_SHOWN = 150  # letters


def script_arguments(hide: Hide) -> list[str] | None:
    """Return the words that the script was given; None where `sys.argv` is another program's (a notebook's kernel, pytest).

    A launcher's own word is left out, and a secret (`--api-key ...`) hidden.
    """
    script = path_of_main_script()
    if script is None or not sys.argv or Path(sys.argv[0]).name != script.name:
        return None
    return hide_command_secrets(list(_without_local_rank(sys.argv[1:])), hide)


def changed_arguments(saved: list[str] | None, now: list[str] | None) -> list[str]:
    """Return which words differ, in one sentence; nothing where one side is not known."""
    if saved is None or now is None or saved == now:
        return []
    before, after = (
        Counter(" ".join(option) for option in split_command_options(words)) for words in (saved, now)
    )
    gone, new = before - after, after - before
    if not gone and not new:  # their order alone: the last of two alike is the one that counts
        gone, new = before, after
    return [f"the command line has {_options_text(new)}, before {_options_text(gone)}"]


def _without_local_rank(words: Sequence[str]) -> Iterator[str]:
    """Yield the words but for the launcher's `--local-rank=0` or `--local-rank 0`."""
    for option in split_command_options(words):
        is_launchers = _LOCAL_RANK.match(option[0])
        yield from option[1 if "=" in option[0] else 2 :] if is_launchers else option


def _options_text(options: Counter[str]) -> str:
    text = " ".join(options.elements()) or "nothing"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
