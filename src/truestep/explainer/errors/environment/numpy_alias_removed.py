# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
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

    Cases:
        otherwise: the name is np.{name}{where}.
            Fix: write {name} in its place{update}.
        otherwise: the name is np.{name}{package}.
    """

    types = ("AttributeError",)
    messages = (
        r"module 'numpy' has no attribute '(?P<name>\w+)'",
        r"`np\.(?P<name>\w+)` was removed in the NumPy 2\.0 release",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        inside = crash.frames[-1] if crash.frames else None
        where = f", in {crashed_file_name(inside.path)}" if inside is not None and not inside.is_users else ""
        if match["name"] in _PYTHONS:
            return {"where": where, "update": " (update that package)" if where else ""}
        return {"package": where} if where else {}


_PYTHONS = ("float", "int", "bool", "object", "str", "long", "complex", "unicode")
