# SPDX-License-Identifier: Apache-2.0
"""A loop that never clears the gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import ADVICE, BUG, RISK, At, SourceCheck, Unsure
from truestep.doctor.finding import Place
from truestep.doctor.library.operations import operations
from truestep.doctor.runtime.user_code_line import names_of_user_frame
from truestep.doctor.source.counters import is_model_made_anew
from truestep.doctor.source.events import Path, Trace, TraceEvent, TrainingLoop
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.live_variables import names_stored
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, names_in, walk
from truestep.doctor.source.rewriting import (
    Edits,
    SourceRewriteError,
    after,
    before,
    event_at,
    receiver_text_at,
)
from truestep.doctor.source.training_actions import CLEAR
from truestep.doctor.source.value_origins import value_origins
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory
    from truestep.doctor.runtime.value_origins import WatchedOrigin


CLOCKS = frozenset({"perf_counter", "perf_counter_ns", "monotonic", "process_time", "time", "elapsed_time"})
LOOKS = (operations(graph="left") - operations(numbers="measured")) | {"float", "repr", "format"}

_CLOCKS = frozenset(
    {
        *("time.time", "time.perf_counter", "time.perf_counter_ns", "time.monotonic", "time.process_time"),
        *(
            "timeit.default_timer",
            "torch.cuda.Event",
            "torch.utils.benchmark.Timer",
            "torch.profiler.profile",
        ),
    }
)
_COUNTS = ("range", "trange", "itertools.repeat", "tqdm.trange")
_MADE = frozenset(f"torch.{name}" for name in operations(numbers="drawn filled"))


class BackwardWithoutZeroGrad(SourceCheck, Watcher):
    """A loop calls backward() and step() but never clears the gradients.

    Why: gradients add up over iterations, so every step uses all earlier batches too.

    Bad:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            F.cross_entropy(net(x), y).backward()
            opt.step()  # here

    Good:
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: call optimizer.zero_grad() once per step, anywhere but between backward() and step().

    Evidence: found in the wild (docs/wild.md); corpus, 186 repositories, beds A, B, E, G, H, I, M, P, Q, T, U,
    V, Y: 23 true, 5 debatable, 12 false.
    """

    code = "GRAD001"
    never = (CLEAR,)
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report each training loop in which nothing clears what it steps."""
        for trace in module.traces:
            for loop in trace.training_loops():
                yield from self._report_findings(module, loop)
            for update, path in _manual_updates(trace):
                if not _is_made_anew(module, trace, update, path) and not _changes_gradients(module, update):
                    text = "The loop calls backward() and steps by hand but never clears the gradients."
                    yield At(update.node, text)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Clear after the step; where it may be left out, at the start of the iteration."""
        trace, step = event_at(module, node, "step")
        clear = f"{receiver_text_at(module, node, step.receiver)}.zero_grad()"
        loop = next((each for each in trace.training_loops() if step in each.steps), None)
        guard = module.enclosing(node, ast.If)
        if loop is None or guard is None or loop.node not in module.ancestors(guard):
            return [after(module, node, clear)]
        run = execution_of(trace, loop.path)
        together = all(guard in module.ancestors(each.node) for each in loop.of("backward"))
        if (run.has_window and run.is_certain) or together:
            return [after(module, node, clear)]
        if module.scope(loop.node) is not module.scope(node) or not isinstance(
            loop.node, (ast.For, ast.While)
        ):
            raise SourceRewriteError
        return [before(module, loop.node.body[0], clear)]

    def _report_findings(self, module: SourceModule, loop: TrainingLoop) -> Iterator[At | Unsure]:
        step = loop.steps[0]
        if loop.clears() or any(loop.clears(path) for path in loop.outer_loops()):
            if (other := _branch_without_clear(module, loop)) is not None:
                text = "On this way nothing clears the gradients; on the other the loop does."
                yield At(other, text, RISK)
            return
        if unknown := loop.of("unknown"):
            name = ast.unparse(getattr(unknown[0].node, "func", unknown[0].node))
            yield Unsure(step.node, f"what {name}() does is not in sight: it may clear the gradients")
            return
        if (
            _is_cleared_under_its_name(module, loop)
            or _is_made_in_each_iteration(module, loop)
            or _is_benchmark_loop(module, loop)
        ):
            return
        if _is_unbound(module, step) and any(_is_unbound(module, each) for each in loop.of("zero_grad")):
            yield Unsure(
                step.node, "what is stepped and what is cleared are made nowhere in sight: they may be one"
            )
            return
        what = "this optimizer's gradients" if loop.of("zero_grad") else "the gradients"
        text = f"The loop calls backward() and step() but never clears {what}."
        yield At(step.node, text, ADVICE if _is_left_out_on_purpose(module, loop) else BUG)

    def __init__(self) -> None:
        self.has_data = (
            False  # a loader, or a value that was looked at: the loop is not there for its duration
        )

    def on_epoch(self, history: WatchHistory, source: object, place: Place) -> None:
        """Note that a loader gives the data."""
        self.has_data = True

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> None:
        """Note that a number was looked at."""
        self.has_data = self.has_data or origin.operation in LOOKS

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report the second step in a row on gradients that still hold those of earlier steps."""
        if (
            record.num_stale_steps == 2
            and not record.has_closure
            and (self.has_data or not _is_step_only_timed())
        ):
            text = f"The gradients still hold those of {record.num_stale_steps} earlier steps."
            yield Observation(
                place,
                text,
                evidence={"step": record.num_steps + 1, "steps_not_cleared": record.num_stale_steps},
            )


def _is_step_only_timed() -> bool:
    """Tell whether the function that steps looks at a clock, and nowhere at a number."""
    names = names_of_user_frame()
    return bool(names & CLOCKS) and not names & LOOKS


def _branch_without_clear(module: SourceModule, loop: TrainingLoop) -> ast.stmt | None:
    """Return what computes the loss in the other arm of the one `if` in which all clears of a loop stand."""
    backward = loop.of("backward")[0]
    loss, clears = backward.receiver, {event.node for event in loop.clears()}
    if not isinstance(loss, ast.Name) or not clears:
        return None
    for choice in module.ancestors(next(iter(clears))):
        if choice is loop.node or not isinstance(choice, ast.If):
            continue
        if any(choice in module.ancestors(each.node) for each in [backward, *loop.steps]):
            return None
        cleared = [any(each in walk(part) for part in choice.body) for each in clears]
        other = choice.orelse if all(cleared) else choice.body
        if not all(choice in module.ancestors(each) for each in clears) or (
            any(cleared) and not all(cleared)
        ):
            continue
        made = [part for part in other if isinstance(part, ast.Assign) and loss.id in names_stored(part)]
        return made[0] if made and module.scope(choice) is module.scope(loss) else None
    return None


def _is_unbound(module: SourceModule, event: TraceEvent) -> bool:
    """Tell a name that nothing in sight makes, as in notes of which a part is kept."""
    return isinstance(event.receiver, ast.Name) and not module.names.bindings(event.receiver)


def _is_left_out_on_purpose(module: SourceModule, loop: TrainingLoop) -> bool:
    """Tell a comment in the loop that speaks of `zero_grad` and is no line of code that was commented out: a lesson."""
    home = module.home(loop.node)
    lines = home.lines[getattr(loop.node, "lineno", 0) : getattr(loop.node, "end_lineno", 0)]
    said = [
        line.strip().lstrip("# ") for line in lines if line.strip().startswith("#") and "zero_grad" in line
    ]
    return any(not _is_code(each) for each in said)


def _is_code(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _is_cleared_under_its_name(module: SourceModule, loop: TrainingLoop) -> bool:
    """Tell a loop that clears another optimizer of the name, made of the same parameters: what the next round steps."""
    step = loop.steps[0]
    name = dotted_name(step.receiver) if step.receiver is not None else None
    home = module.home(step.node)
    return name is not None and any(
        each.receiver is not None
        and dotted_name(each.receiver) == name
        and module.home(each.node).scope(each.node) is home.scope(step.node)
        for each in loop.of("zero_grad")
    )


def _is_made_in_each_iteration(module: SourceModule, loop: TrainingLoop) -> bool:
    """An optimizer or model that each iteration makes anew starts without gradients."""
    receiver = loop.steps[0].receiver
    made = value_origins(module, receiver) if receiver is not None else ()
    return any(
        isinstance(each, ast.Call)
        and loop.node in module.ancestors(each)
        and module.kinds.given_by_library(each) is None  # which made it before
        for each in made
    )


def _manual_updates(trace: Trace) -> Iterator[tuple[TraceEvent, Path]]:
    """Yield the first `p.data -= rate * p.grad` of each loop that goes backward and never clears, and the loop."""
    seen: set[Path] = set()
    for update in trace.of("update"):
        loops = [update.path[: i + 1] for i, frame in enumerate(update.path) if frame.kind == "loop"]
        around = [path for path in loops if trace.within(path, "backward")]
        if not around or around[-1] in seen:
            continue
        seen.add(around[-1])
        if not any(trace.ever(path, "zero_grad", "unknown", "step") for path in around):
            yield update, around[-1]


def _changes_gradients(module: SourceModule, update: TraceEvent) -> bool:
    """Tell `p.grad.mul_(0.9)` beside an update by hand: what is left in the gradients is meant to be."""
    home = module.home(update.node)
    calls = home.inside(home.scope(update.node), ast.Call)
    methods = [each.func for each in calls if isinstance(each.func, ast.Attribute)]
    changed = [each.value for each in methods if each.attr.endswith("_")]
    return any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in changed)


def _is_made_anew(module: SourceModule, trace: Trace, update: TraceEvent, loop: Path) -> bool:
    """Tell whether the loop makes the model, or gives the name another tensor, which has no gradient yet."""
    applied = [each.receiver for each in trace.within(loop, "forward") if each.receiver is not None]
    if any(is_model_made_anew(module, loop[-1].node, each) for each in applied):
        return True
    name = update.receiver
    if not isinstance(name, ast.Name):
        return False
    home = loop[-1].node
    return any(
        each.how in ("assign", "unpack", "with") and home in module.ancestors(each.node)
        for each in module.names.bindings(name)
    )


def _is_benchmark_loop(module: SourceModule, loop: TrainingLoop) -> bool:
    """Tell a loop beside a clock that repeats a step on the same data, or on made-up ones, and looks at no loss."""
    home = module.home(loop.node)
    calls = home.directly_in(home.scope(loop.node), ast.Call)
    if not any(home.qualify(each.func) in _CLOCKS for each in calls) or not _is_plain_counting_loop(
        home, loop.node
    ):
        return False
    return all(_is_loss_unread(module.home(each.node), each) for each in loop.of("backward"))


def _is_plain_counting_loop(module: SourceModule, node: ast.AST) -> bool:
    """Tell a loop that counts, and takes nothing by its count or from what goes on."""
    if not isinstance(node, ast.For):
        return False
    iterated = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
    if (module.qualify(iterated) or getattr(iterated, "id", "")) not in _COUNTS:
        return False
    counts = set(names_in(node.target))
    for each in module.inside(node, ast.Assign):
        read = set(names_in(each.value))
        made = {
            part
            for part in walk(each.value)
            if isinstance(part, ast.Call) and module.qualify(part.func) in _MADE
        }
        given = [
            part
            for part in walk(each.value)
            if isinstance(part, ast.Name) and not module.index.is_called(part)
        ]
        if read & counts or not (given or made):
            return False  # by its count, or from a function that may give another batch each time
    return not any(counts & set(names_in(arg)) for each in module.inside(node, ast.Call) for arg in each.args)


def _is_loss_unread(module: SourceModule, backward: TraceEvent) -> bool:
    """Tell whether a loss is used for its backward alone."""
    loss = backward.receiver
    if not isinstance(loss, ast.Name):
        return isinstance(loss, ast.Call)
    own = {id(part) for part in walk(backward.node)}
    scope = module.scope(loss)
    return all(id(each) in own for each in module.reads(loss.id) if module.scope(each) is scope)
