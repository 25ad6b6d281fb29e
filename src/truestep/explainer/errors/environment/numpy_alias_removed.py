# SPDX-License-Identifier: Apache-2.0
"""NumpyAliasRemoved."""

from truestep.explainer.explainer import Cause, Crash, Explainer, Match
from truestep.explainer.source import crashed_file_name


class NumpyAliasRemoved(Explainer):
    """Code uses a name that NumPy has removed.

    Means: np.float, np.int, np.bool and np.object went in NumPy 1.24, others (np.Inf, np.product) in 2.0.

    Raises:
        np.float(1)

    Works:
        float(1)

    Fix: write Python's own float, int, bool and object (np.float64 where that is meant). If a package does it, update the
    package, or pin an older NumPy for it.
    """

    types = ("AttributeError",)
    messages = (
        r"module 'numpy' has no attribute '(?P<name>\w+)'",
        r"`np\.(?P<name>\w+)` was removed in the NumPy 2\.0 release",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        name = match["name"]
        inside = crash.frames[-1] if crash.frames else None
        where = f", in {crashed_file_name(inside.path)}" if inside is not None and not inside.is_users else ""
        if name not in ("float", "int", "bool", "object", "str", "long", "complex", "unicode"):
            return Cause(f"the name is np.{name}{where}.") if where else None
        return Cause(
            f"the name is np.{name}{where}.",
            f"write {name} in its place{' (update that package)' if where else ''}.",
        )
