# SPDX-License-Identifier: Apache-2.0
"""`torch.autocast()` with nothing in it."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, with_first
from truestep.doctor.source.values import forwards_all


class AutocastWithoutDevice(SourceCheck):
    """torch.autocast() is called without the device type.

    Why: it raises TypeError; only the old torch.cuda.amp.autocast() knew its device.

    Bad:
        with torch.autocast():  # here
            out = net(x)

    Good:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = net(x)

    Fix: name the device type first: torch.autocast("cuda") or torch.autocast(x.device.type).
    """

    code = "AMP005"
    words = ("autocast",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call without arguments."""
        for call in module.calls("torch.autocast", "torch.amp.autocast"):
            named = any(word.arg == "device_type" for word in call.keywords)
            if not call.args and not named and not forwards_all(call):
                yield At(call, "torch.autocast() needs the device type: it raises TypeError.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Name the device."""
        return [with_first(module, node, '"cuda"')]
