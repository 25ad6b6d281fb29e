# SPDX-License-Identifier: Apache-2.0
"""That the ranks log the same: a number that differs is refused, and of media that differ it is said whose are kept."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from truestep.core.errors import OptionError
from truestep.core.text_formatting import keyword_text
from truestep.run.media.kind import EncodedMedia

if TYPE_CHECKING:
    from truestep.run.state import RunState


def check_logged_equal_on_ranks(
    run: "RunState", numbers: Mapping[str, float], media: Mapping[str, EncodedMedia]
) -> None:
    """Raise an OptionError where a rank logs another number than rank 0, and say once where it logs another text or image."""
    facts = {name: repr(value) for name, value in numbers.items()}
    # images that each rank has drawn for itself are no mistake: rank 0's are those of the run
    facts |= {name: hashlib.sha256(each.content).hexdigest() for name, each in media.items()}
    facts = dict(sorted(facts.items()))  # names that come from a set have another order in each process
    what = f"run.log({', '.join(facts)})"
    found = [*run.agreement.differences(what, lambda: facts)]
    for name, one, other, rank in found:
        if name in numbers:
            raise OptionError(
                f"The ranks differ in {what}: {name} is {one} on rank 0 and {other} on rank {rank}. All of them log the same "
                "values: what is measured on one rank alone is no measure of the run (net.evaluate gives all the same)."
            )
    for name, _, _, rank in found:
        run.screen.say_once(
            f"run.log({keyword_text(name, f'ts.{type(media[name]).__name__}(...)')}) "
            "differs by rank, and rank 0's is the one that is kept (rank "
            f"{rank} has another). Where it shows a number, take that of net.evaluate or update.metrics, which all have alike; "
            "where it is drawn, draw it behind the pass, where the random streams are the same on every rank.",
            f"media {name} by rank",
        )
