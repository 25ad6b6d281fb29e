# SPDX-License-Identifier: Apache-2.0
"""A process group left open."""

from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class GroupNotDestroyed(SourceCheck):
    """init_process_group() without destroy_process_group().

    Why: NCCL warns at exit, and work in flight on another rank may be cut off.

    Bad:
        def main():
            dist.init_process_group("gloo")  # here
            train()

        main()

    Good:
        def main():
            dist.init_process_group("gloo")
            train()
            dist.destroy_process_group()

        main()

    Fix: destroy_process_group() at the end.
    """

    code = "DIST011"
    words = ("init_process_group",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it in a script that trains or defines its own start."""
        starts = module.calls("torch.distributed.init_process_group")
        if starts and not module.calls("torch.distributed.destroy_process_group") and module.functions:
            yield At(starts[0], "The process group is never destroyed.", ADVICE)
