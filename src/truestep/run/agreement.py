# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a run decide together: to save, to stop, what rank 0 has found; alone, each decision is one's own."""

import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from truestep.core.errors import OptionError
from truestep.engine.processes.packing import pack_rank_message, unpack_rank_message
from truestep.engine.processes.world import World

SECONDS_BETWEEN = 1.0
MOST_BATCHES = 1000
CODE_OF = "the code of "


class LoopRequests(NamedTuple):
    """What a process wants to happen between two batches."""

    signal: int = 0
    """The signal that asks it to stop, 0 where none came."""
    save: bool = False
    """Whether the code asked for a checkpoint."""
    is_time: bool = False
    """Whether it is time for one; rank 0's clock decides."""


class RankAgreement:
    """Asks all ranks, about once a second, so that a batch is not held up by it; alone it answers with what it is asked."""

    def __init__(self, world: World | None) -> None:
        self._world = world
        self.is_alone = world is None
        """Whether there is nobody to agree with."""
        self._left = 1
        self._batches, self._since = 0, time.monotonic()
        self._facts: Callable[[], dict[str, str]] = dict
        self._check: Callable[[list[dict[str, str]]], None] = lambda _: None

    def compare(
        self, facts: Callable[[], dict[str, str]], check: Callable[[list[dict[str, str]]], None]
    ) -> None:
        """Let `check` see everybody's facts whenever the ranks are asked and these are not the same."""
        self._facts, self._check = facts, check

    def between_batches(self, wishes: LoopRequests) -> LoopRequests:
        """Return what all do now; nothing where it is not asked this time, and what is wished for waits."""
        if self._world is None:
            return wishes
        self._left -= 1
        self._batches += 1
        return self.asked("the end of a batch", wishes) if self._left <= 0 else LoopRequests()

    def asked(self, what: str, wishes: LoopRequests) -> LoopRequests:
        """Ask all ranks now, and how many batches they have until they are asked again."""
        if self._world is None:
            return wishes
        seconds = (time.monotonic() - self._since) / max(self._batches, 1)
        mine = min(MOST_BATCHES, int(SECONDS_BETWEEN / max(seconds, 1e-6)))
        facts = self._facts()
        found = self._world.meet(what, *wishes, mine, zlib.crc32(repr(facts).encode()))
        if len({each[4] for each in found}) > 1:
            self._check(self.gathered(what, facts))
        # rank 0's number: all ask again behind the same batch
        self._left = max(1, int(found[0][3]))
        self._batches, self._since = 0, time.monotonic()
        return LoopRequests(
            int(max(each[0] for each in found)), any(each[1] for each in found), bool(found[0][2])
        )

    def broadcast_answer_of_rank_0(self, what: str, mine: bool) -> bool:
        """Return rank 0's answer to a question that every rank asks."""
        return mine if self._world is None else bool(self._world.meet(what, mine)[0][0])

    # ------------------------------------------------------------------ what rank 0 finds or makes

    def broadcast_json_from_rank_0(self, what: str, make: Callable[[], Any]) -> Any:
        """Return on every rank what rank 0 makes: JSON."""
        return self._broadcast_from_rank_0(what, make, lambda made: json.dumps(made).encode(), json.loads)

    def broadcast_tree_from_rank_0(self, what: str, make: Callable[[], Any]) -> Any:
        """Return on every rank what rank 0 makes: a tree of tensors and plain values."""
        return self._broadcast_from_rank_0(what, make, pack_rank_message, unpack_rank_message)

    def _broadcast_from_rank_0(
        self, what: str, make: Callable[[], Any], pack: Callable[[Any], bytes], unpack: Callable[[bytes], Any]
    ) -> Any:
        world = self._world
        if world is None:
            return make()
        if world.rank:
            return unpack(world.broadcast_bytes(None, what))
        try:
            with world.busy(what):
                made = make()
        except BaseException as error:
            world.failed(error)
            raise
        world.broadcast_bytes(pack(made), what)
        return made

    def refuse_rank_differences(
        self,
        what: str,
        facts: Callable[[], dict[str, Any]],
        advice: str = "run the same code with the same values",
    ) -> None:
        """Raise an OptionError where a rank has another value than rank 0, or none; alone, no facts are gathered."""
        for name, one, other, rank in self.differences(what, facts):
            raise OptionError(
                f"The ranks differ in {what}: {name} is {one} on rank 0 and {other} on rank {rank}. All of them {advice}."
            )

    def differences(
        self, what: str, facts: Callable[[], dict[str, Any]]
    ) -> Iterator[tuple[str, Any, Any, int]]:
        """Yield names of facts, the value of rank 0, another one and its rank; alone, no facts are gathered.

        The code of a file is compared where both have it: one rank may import what draws plots, and the others not.
        """
        if self._world is None:
            return
        mine = json.dumps(facts()).encode()
        # Facts grow with the number of tensors, and travel only where their digests differ.
        if len(set(self._world.share_bytes(hashlib.sha256(mine).digest(), what))) == 1:
            return
        everybody = [json.loads(each) for each in self._world.share_bytes(mine, what)]
        first = everybody[0]
        for rank, found in enumerate(everybody):
            for name in dict.fromkeys([*first, *found]):
                one, other = first.get(name), found.get(name)
                is_one_ranks = name.startswith(CODE_OF) and None in (one, other)
                if one != other and not is_one_ranks:
                    yield name, one, other, rank

    def gathered(self, what: str, mine: Any) -> list[Any]:
        """Return every rank's tree."""
        assert self._world is not None
        return [unpack_rank_message(each) for each in self._world.share_bytes(pack_rank_message(mine), what)]

    def gather_trees_on_rank_0(self, what: str, mine: Any) -> list[Any]:
        """Return every rank's tree on rank 0; on the others one's own, in its place."""
        world = self._world
        assert world is not None
        found = world.gather_bytes_to_rank_0(pack_rank_message(mine), what)
        if found:
            return [unpack_rank_message(each) for each in found]
        return [mine if rank == world.rank else {} for rank in range(world.size)]
