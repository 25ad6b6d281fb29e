# SPDX-License-Identifier: Apache-2.0
"""Devices that can be used here."""

import torch

from truestep.core.errors import OptionError


def usable_device(device: str | torch.device) -> torch.device:
    """Return `device`, or raise an OptionError with torch's reason where nothing can be put on it."""
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    # torch without CUDA raises an AssertionError where a tensor is made; torch.device("cuda") itself succeeds anywhere
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        instead = (
            "torch calls it device='cuda', and 'auto', where that is an option, takes what there is"
            if device == "gpu"
            else f"{reason}. Use 'cpu', or 'auto' where that is an option"
        )
        raise OptionError(f"device={str(device)!r} can't be used here: {instead}.") from error
    return chosen
