# SPDX-License-Identifier: Apache-2.0
"""Which rows of a global batch each process takes: consecutive ones, as equal in number as can be."""

from typing import NamedTuple


class RankShare(NamedTuple):
    """The place of this process among those that share each batch."""

    rank: int = 0
    size: int = 1

    def of(self, num_rows: int) -> slice:
        """Return this process's rows of `num_rows`; the first processes have one more where it does not come out even."""
        each, more = divmod(num_rows, self.size)
        start = self.rank * each + min(self.rank, more)
        return slice(start, start + each + (self.rank < more))


WHOLE = RankShare()
