# SPDX-License-Identifier: Apache-2.0
"""log of something that can be 0."""

import ast
import itertools
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.library.operations import operations
from truestep.doctor.source.batch_counts import num_rows
from truestep.doctor.source.loss_modules import calls_with_graph, is_model_call, is_without_grad
from truestep.doctor.source.losses import loses_graph
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part, receiver_of, walk
from truestep.doctor.source.untaken_branches import is_never_taken
from truestep.doctor.source.value_origins import last_operands, last_operations

_BOUNDED = operations(numbers="share") | {
    "tanh",
    "normalize",
    "cosine_similarity",
    "sin",
    "cos",
    "softsign",
    "rand",
    "rand_like",
}
_TAKES = functions("takes numbers over")
_FEW = 32  # rows of a toy
_FORGIVE = ("exp", "exp2", "logaddexp", "logsumexp", "max", "maximum")  # what takes -inf and gives the limit


class LogarithmOfZero(SourceCheck):
    """The logarithm of a softmax, a sigmoid or a magnitude is taken with nothing that keeps it from 0.

    Why: log(0) is -inf, and one such value makes the loss and then every weight NaN.

    Bad:
        p = net(x).softmax(1)
        loss = -p.log().mean()  # here

    Good:
        loss = -net(x).log_softmax(1).mean()

    Fix: log_softmax, logsigmoid, or .clamp(min=1e-7).log().

    Evidence: JDAI-CV/fast-reid c9bc3ceb fastreid/modeling/losses/focal_loss.py:80; THUDM/CogDL 281f4742
    cogdl/models/emb/gatne.py:263; corpus, 186 repositories, beds A, B, C, D, F, G, H, L, M, O, P, Q, S, T, U,
    V, W, X, Y: 29 true, 16 debatable, 8 false.
    """

    code = "LOSS011"
    words = ("log(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report log(x) where x was made by one of them on every path."""
        of_tensors = [each for each in module.method_calls("log") if module.qualify(each.func) is None]
        for call in [*of_tensors, *module.calls("torch.log")]:
            inner = call.args[0] if call.args else receiver_of(call)
            found = last_operations(module, inner) if inner is not None else frozenset()
            if inner is None or not found or not found <= {"softmax", "sigmoid", "abs"}:
                continue
            is_right = (
                _is_bounded_input(module, inner)
                or _is_infinity_harmless(module, call)
                or is_never_taken(module, call)
                or _is_result_unread(module, call)
            )
            if self._is_tensor(module, inner, found) and not is_right:
                made = " or ".join(sorted(str(each) for each in found))
                # without a way back it spoils a figure, and no weight
                is_small = _has_no_gradient(module, call, inner) or _is_of_few_literal_rows(module, call)
                severity = ADVICE if is_small else RISK
                yield At(call, f"log of the result of {made}, which can be 0: -inf, then NaN.", severity)

    def _is_tensor(self, module: SourceModule, inner: ast.expr, operations: AbstractSet[str | None]) -> bool:
        """`abs` is a magnitude only on the result of a transform; elsewhere nothing is known of it."""
        if "abs" not in operations:
            return True
        values = [inner] if isinstance(inner, ast.Call) else module.definitions(inner)
        return all(
            (each is not None and "stft" in ast.unparse(each))
            or (each is not None and "fft" in ast.unparse(each))
            for each in values
        )


def _has_no_gradient(module: SourceModule, call: ast.Call, inner: ast.expr) -> bool:
    """Tell a logarithm under `no_grad`, and one of what comes from there alone, such as a teacher's shares."""
    if is_without_grad(module, call) or _is_only_reported(module, call):
        return True
    values = [inner, *last_operands(module, inner)]
    reads = [
        part for each in values if each is not None for part in ast.walk(each) if isinstance(part, ast.Name)
    ]
    made = [binding.node for read in reads for binding in module.resolver.reaching(read)]
    return any(is_without_grad(module, each) for each in made) and not any(
        is_model_call(module, each) for each in calls_with_graph(module, inner)
    )


def _is_of_few_literal_rows(module: SourceModule, call: ast.Call) -> bool:
    """Tell a loss over rows that are written out, so few that no model of them comes to 0."""
    names = [each for each in walk(module.statement(call)) if isinstance(each, ast.Name)]
    made = [each for name in names for each in module.definitions(name) if isinstance(each, ast.Call)]
    written = [each.args[0] for each in made if module.qualify(each.func) in _TAKES and each.args]
    return any((num_rows(module, each) or _FEW) < _FEW for each in written)


def _is_only_reported(module: SourceModule, call: ast.Call) -> bool:
    """Tell `(p * p.log()).sum().item()`: a number to look at, from which nothing goes backward."""
    around = itertools.takewhile(lambda each: not isinstance(each, ast.stmt), module.ancestors(call))
    return any(isinstance(each, ast.expr) and loses_graph(each) for each in around)


def _is_bounded_input(module: SourceModule, shares: ast.expr) -> bool:
    """Tell the softmax or the sigmoid of what lies between -1 and 1 already: a softmax again, or `torch.rand(3)`."""
    behind = list(last_operands(module, shares))
    return bool(behind) and all(
        each is not None and bool(last := last_operations(module, each)) and last <= _BOUNDED
        for each in behind
    )


def _is_result_unread(module: SourceModule, call: ast.Call) -> bool:
    """Tell a term of a function under a name that nothing reads: what is NaN there goes nowhere."""
    statement = module.statement(call)
    if not isinstance(statement, ast.Assign) or not isinstance(module.scope(call), ast.FunctionDef):
        return False
    names = [each.id for each in statement.targets if isinstance(each, ast.Name)]
    scope = module.scope(call)
    return len(names) == len(statement.targets) and not any(
        each.id in names and isinstance(each.ctx, ast.Load) for each in module.inside(scope, ast.Name)
    )


def _is_infinity_harmless(module: SourceModule, call: ast.Call) -> bool:
    """Tell a logarithm without a way back that is read by maximum and exp alone: its -inf gives their limits."""
    statement = module.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is call else None
    if not isinstance(target, ast.Name) or not is_without_grad(module, call):
        return False
    scope = module.scope(call)
    reads = [each for each in module.reads(target.id) if module.scope(each) is scope]
    above = [[part for part in module.ancestors(each) if isinstance(part, ast.Call)] for each in reads]
    return bool(reads) and all(any(last_part(part.func) in _FORGIVE for part in parts) for parts in above)
