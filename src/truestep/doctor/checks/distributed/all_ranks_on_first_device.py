# SPDX-License-Identifier: Apache-2.0
""".cuda() without set_device."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import constant, seen_through


class AllRanksOnFirstDevice(SourceCheck):
    """In a distributed script a module goes to .cuda() without a number, and set_device() is never called.

    Why: every rank then uses cuda:0: memory runs out there, or NCCL stops.

    Bad:
        def worker(rank):
            dist.init_process_group("nccl", rank=rank, world_size=2)
            net = DDP(Net().cuda(), device_ids=[rank])  # here
            dist.destroy_process_group()

    Good:
        def worker(rank):
            torch.cuda.set_device(rank)
            dist.init_process_group("nccl", rank=rank, world_size=2)
            net = DDP(Net().cuda(), device_ids=[rank])
            dist.destroy_process_group()

    Fix: torch.cuda.set_device(local_rank) first, or .to(local_rank) everywhere.
    """

    code = "DIST003"
    words = ("init_process_group",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report .cuda(), .to("cuda") and .to("cuda:0") of modules beside init_process_group."""
        starts = module.calls("torch.distributed.init_process_group")
        if not starts or module.calls("torch.cuda.set_device") or "CUDA_VISIBLE_DEVICES" in module.text:
            return
        for call in module.method_calls("cuda", "to"):
            assert isinstance(call.func, ast.Attribute)
            bare = call.func.attr == "cuda" and not call.args and not call.keywords
            first = (
                call.func.attr == "to"
                and len(call.args) == 1
                and constant(call.args[0]) in ("cuda", "cuda:0")
            )
            if (bare or first) and self._is_model(module, call.func.value):
                yield At(call, "Every rank puts its model on cuda:0: set_device() is never called.")

    def _is_model(self, module: SourceModule, node: ast.expr) -> bool:
        value = seen_through(module, node)
        made = (
            isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id[:1].isupper()
        )
        return made or module.kind(node) in ("module", "ddp")
