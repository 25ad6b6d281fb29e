# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that all ranks write at once."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted
from truestep.doctor.source.one_rank import differs_between_ranks, is_of_one_rank
from truestep.doctor.source.values import argument

MAX_CALLS = 5  # of one function by the other
_STARTS = "torch.distributed.init_process_group"
_SHARDED = {"FullyShardedDataParallel", "fully_shard", "deepspeed", "FSDP", "accelerate", "xm"}


class SavedByEveryRank(SourceCheck):
    """Every rank of a distributed training writes the same file.

    Why: the writes run into each other, and a file that is read, copied or interrupted meanwhile is damaged.

    Bad:
        def main(rank):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(net)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for x, y in loader:
                    opt.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                    opt.step()
                torch.save(model.module.state_dict(), "last.pt")  # here
            torch.distributed.destroy_process_group()

        if __name__ == "__main__":
            main(int(os.environ["RANK"]))

    Good:
        def main(rank):
            torch.distributed.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(net)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for x, y in loader:
                    opt.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                    opt.step()
                if rank == 0:
                    torch.save(model.module.state_dict(), "last.pt")
            torch.distributed.destroy_process_group()

        if __name__ == "__main__":
            main(int(os.environ["RANK"]))

    Fix: save on rank 0 alone, and let the others wait with torch.distributed.barrier() before they read it.
    """

    code = "DIST016"
    words = ("init_process_group",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the outermost call on a way to torch.save without a test for the rank, behind the start of the group."""
        if module.identifiers & _SHARDED:
            return
        told: set[ast.AST] = set()
        for call in module.calls("torch.save"):
            path = argument(call, 1, "f")
            if path is None or differs_between_ranks(module, path) or not _is_of_weights(module, call):
                continue
            for outermost in _ways(module, call, 0):
                if outermost not in told and _is_of_training(module.home(outermost), outermost):
                    told.add(outermost)
                    yield At(outermost, "Every rank of the job saves here, to the same file.", RISK)


def _ways(module: SourceModule, call: ast.Call, depth: int) -> Iterator[ast.Call]:
    """Yield the first call of each unguarded way from a function that starts the group to a save."""
    if depth > MAX_CALLS or is_of_one_rank(module, call):
        return
    scope = module.scope(call)
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(scope, ast.Module) and _starts(module, scope, 0):
            yield call
        return
    if _starts(module, scope, 0):
        yield call
        return
    for caller in module.callers(scope):
        home = module.home(caller)
        if not any(differs_between_ranks(home, each) for each in caller.args):
            yield from _ways(home, caller, depth + 1)


def _is_of_weights(module: SourceModule, call: ast.Call) -> bool:
    """Tell a save of a model, or one in a function that asks for a state: figures may be of a rank's own data."""
    if any(module.kind(each) in ("module", "ddp") for each in call.args[:1]):
        return True
    asked = module.method_calls("state_dict")
    return any(module.scope(each) is module.scope(call) for each in asked)


def _is_of_training(module: SourceModule, call: ast.Call) -> bool:
    """Tell a save in a loop, or behind one: before it there is nothing yet that was trained."""
    loops = module.inside(module.scope(call), ast.For, ast.While)
    return any(each.lineno < call.lineno for each in loops)


def _starts(module: SourceModule, scope: Function | ast.Module, depth: int) -> bool:
    """Tell whether a function starts the process group, be it in a function that it calls."""
    key = (_starts, scope)
    if key not in module.remembered:
        module.remembered[key] = False  # a cycle ends here
        module.remembered[key] = any(
            _is_start(module, each, depth) for each in module.directly_in(scope, ast.Call)
        )
    return bool(module.remembered[key])


def _is_start(module: SourceModule, call: ast.Call, depth: int) -> bool:
    if module.qualify(call.func) == _STARTS:
        return True
    if depth > 2 or (dotted(call.func) or "").endswith("save"):
        return False
    function = module.target(call)
    return isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and _starts(
        module.home(function), function, depth + 1
    )
