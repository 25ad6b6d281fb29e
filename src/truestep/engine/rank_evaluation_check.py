# SPDX-License-Identifier: Apache-2.0
"""That ranks which evaluate together measure the same: function, weights, metric and, of plain batches, as many."""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from torch import nn

from truestep.core.errors import BatchError, DataError, RankError
from truestep.core.module_inspection import original_module
from truestep.core.text_formatting import plural
from truestep.engine.batches import EmptyBatchError
from truestep.engine.data.batch_source import BatchSource
from truestep.engine.data.rank_data_check import json_digest_number, refuse_other_data
from truestep.engine.example_counting import LOOKED_AT

if TYPE_CHECKING:
    from truestep.engine.parts import LearnerParts
    from truestep.engine.processes.world import World

_DATA = "the data of an evaluation"
_AVERAGED = "What the ranks find is averaged into one number, which would be neither's measure."
_SHARES = (
    "Give every rank the whole data, net.evaluate(values, run.data(data, batch_size=256)): each takes its rows, and every sample "
    "counts once. Where each rank holds a share of its own, write run.data(lambda: batches, per_rank=True)."
)

Seen = Sequence[int | None]
"""How many batches, and samples in them; None where nobody can say."""


class EvaluationFacts:
    """What one rank is about to measure."""

    def __init__(self, learner: "LearnerParts", values: Any, data: Any, metric: Any) -> None:
        learners = learner.context.learners
        name, digest, self._place = _function_identity(values)
        self._facts: dict[str, Any] = {
            "function": [name, digest],
            "averaged": [name for name, each in learners.items() if each.shows_average],
            "metric": None if metric is None else type(metric).__qualname__,
            # a generator is counted when it has been read
            "seen": _count_batches_and_samples(data) if isinstance(data, list | tuple) else [None, None],
        }
        self._data = {_DATA: data.facts()} if isinstance(data, BatchSource) else {}
        self.is_source = bool(self._data)
        self.number = json_digest_number([self._facts, self._data])

    def refuse_differing_facts(self, world: "World", numbers: Sequence[float]) -> None:
        """Raise where the ranks, whose facts have these numbers, measure something else each."""
        if len(set(numbers)) == 1:
            return
        mine = json.dumps([self._facts | {"place": self._place}, self.is_source]).encode()
        found = [json.loads(each) for each in world.share_bytes(mine, "what an evaluation measures")]
        facts = [each[0] for each in found]
        for rank, other in enumerate(facts):
            if how := _evaluation_difference(facts[0], other, rank):
                raise RankError(f"The ranks don't measure the same: {how}")
        refuse_other_counts([each["seen"] for each in facts])
        sources = [is_source for _, is_source in found]
        if len(set(sources)) > 1:
            rank = sources.index(not sources[0])
            what = ("a list of batches", "what run.data returned")
            raise DataError(
                f"The ranks were given different data to evaluate: {what[sources[0]]} on rank 0 and {what[sources[rank]]} on rank "
                f"{rank}. {_AVERAGED} {_SHARES}"
            )
        refuse_other_data(world, self._data, numbers)


def refuse_other_counts(everybody: Sequence[Seen]) -> None:
    """Raise a DataError where the ranks were given another number of plain batches, or of samples in them."""
    for place in (0, 1):
        known = {rank: seen[place] for rank, seen in enumerate(everybody) if seen[place] is not None}
        first = next(iter(known), 0)
        for rank, number in known.items():
            if number != known[first]:
                raise DataError(
                    f"The ranks were given different data to evaluate: {_counts_text(everybody[first])} on rank {first} and "
                    f"{_counts_text(everybody[rank])} on rank {rank}. {_AVERAGED} {_SHARES}"
                )


def _counts_text(seen: Seen) -> str:
    batches, samples = seen
    told = [] if samples is None else [plural(samples, "sample")]
    return " in ".join([*told, *([] if batches is None else [plural(batches, "batch", "batches")])])


def _count_batches_and_samples(batches: Sequence[Any]) -> Seen:
    numbers = [_count_examples(batch) for batch in batches]
    known = [number for number in numbers if number is not None]
    return [len(numbers), sum(known) if len(known) == len(numbers) else None]


def _count_examples(batch: Any) -> int | None:
    try:
        return LOOKED_AT.count(batch)
    except EmptyBatchError:
        return 0
    except BatchError:
        return None


def _evaluation_difference(one: Mapping[str, Any], other: Mapping[str, Any], rank: int) -> str | None:
    """Return how two ranks measure, what comes of that, and what to write; None where they measure the same."""
    if one["function"] != other["function"]:
        return (
            f"the function is {one['place']} on rank 0 and {other['place']} on rank {rank}. {_AVERAGED} Give net.evaluate "
            "one function on every rank; what one rank does besides stands in it, under `if run.is_main:`."
        )
    if one["averaged"] != other["averaged"]:
        ranks = (0, rank) if other["averaged"] else (rank, 0)
        name = (set(one["averaged"]) ^ set(other["averaged"])).pop()
        return (
            f"it is by the weights of {name!r} on rank {ranks[0]} and by their moving average on rank {ranks[1]}. {_AVERAGED} "
            "Write averaged=, or the block of net.averaged(), on all ranks alike."
        )
    if one["metric"] != other["metric"]:
        return (
            f"metric= is {one['metric']} on rank 0 and {other['metric']} on rank {rank}. Rank 0's is given the results of all; "
            "give every rank one of the same kind, and look at the answer, which is the same on all."
        )
    return None


def _function_identity(function: Any) -> tuple[str, str, str]:
    """Return the name of a function, a digest of its code, and both for people; of one that is wrapped, those of the inner one.

    Values that it is bound to are left out: a path, a number of the rank, a switch for printing may differ.
    """
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    kind: Any = function if isinstance(function, type) else type(original_module(function) or function)
    name = str(getattr(function, "__qualname__", kind.__qualname__))
    if not isinstance(function, FunctionType):  # an object that is called
        function = getattr(kind, "forward" if issubclass(kind, nn.Module) else "__call__", None)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return name, "", name
    digest = hashlib.sha256(json.dumps(_code_facts(code)).encode()).hexdigest()[:16]
    return name, digest, f"{name} ({code.co_filename}:{code.co_firstlineno})"


def _code_facts(code: CodeType) -> list[Any]:
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return [code.co_code.hex(), *names, [_constant_facts(each) for each in code.co_consts]]


def _constant_facts(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code_facts(value)
    if isinstance(value, tuple):
        return [_constant_facts(each) for each in value]
    # its order is another one in each process
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
