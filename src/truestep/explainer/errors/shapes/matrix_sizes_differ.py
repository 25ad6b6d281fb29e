# SPDX-License-Identifier: Apache-2.0
"""MatrixSizesDiffer."""

from truestep.explainer.evidence import input_sentence, running_layer, shapes_on_line
from truestep.explainer.explainer import Cause, Crash, Explainer, Match


class MatrixSizesDiffer(Explainer):
    """Two matrices are multiplied whose inner sizes differ.

    Means: (rows, k) can only be multiplied by (k, columns): nn.Linear(k, ...) needs inputs whose last size is k.

    Raises:
        layer = nn.Linear(20, 5)
        layer(torch.zeros(4, 10))

    Works:
        layer = nn.Linear(10, 5)
        layer(torch.zeros(4, 10))

    Fix: give the layer the size that arrives (print x.shape before it), or bring the input to the size that the
    layer has: flatten(1) before a classifier keeps the batch axis, transpose(1, 2) puts features last.
    """

    messages = (
        r"mat1 and mat2 shapes cannot be multiplied \((?P<rows>\d+)x(?P<given>\d+) and (?P<wanted>\d+)x(?P<out>\d+)\)",
        r"shapes \(\d+,(?P<given>\d+)\) and \((?P<wanted>\d+),\d+\) not aligned",
        r"mat1 dim 1 must match mat2 dim 0",
        r"size mismatch, m1: \[(?P<rows>\d+) x (?P<given>\d+)\], m2: \[(?P<wanted>\d+) x (?P<out>\d+)\]",
        r"size mismatch, got (?:input|\w+) \(\d+\),? mat \(\d+x(?P<wanted>\d+)\),? vec \((?P<given>\d+)\)",
        r"Expected size for first two dimensions of batch2 tensor to be: \[\d+, (?P<given>\d+)\] but got: \[\d+, (?P<wanted>\d+)\]",
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        sizes = match.groupdict()
        if not sizes.get("given"):
            return None
        given, wanted = int(sizes["given"]), int(sizes["wanted"])
        if "out" not in sizes:
            return Cause(
                f"the inner sizes are {given} and {wanted}: {shapes_on_line(crash)}.".replace(": .", ".")
            )
        rows, out = int(sizes["rows"]), int(sizes["out"])
        who = f"{running_layer(crash)}{input_sentence(crash)}:" if crash.layer else "the input has"
        if crash.is_live and crash.layer is None:
            return _of_two_matrices(
                crash, f"({rows}, {given})", f"({wanted}, {out})", given == out, rows == wanted
            )
        says = f"{who} {given} features where {wanted} are expected."
        return Cause(says, _fix(rows, given, wanted, out))


def _of_two_matrices(crash: Crash, left: str, right: str, by_second: bool, by_first: bool) -> Cause:
    """Return the cause of a product that no layer makes."""
    shown = shapes_on_line(crash)
    says = f"the left is {left}, the right {right}{f': {shown}' if shown else ''}."
    if by_second and by_first:
        return Cause(
            says,
            "transpose one: a @ b.T has a value for each pair of rows, a.T @ b for each pair of columns.",
        )
    if by_second:
        return Cause(says, "transpose the right one: a @ b.T.")
    if by_first:
        return Cause(says, "transpose the left one: a.T @ b.")
    return Cause(says, "look at where both are made: the columns of the left must be the rows of the right.")


def _fix(rows: int, given: int, wanted: int, out: int) -> str:
    if rows * given % wanted == 0 and given != 1 and rows * given != wanted and given < wanted:
        return (
            f"{wanted} is {wanted // given if wanted % given == 0 else round(wanted / given, 1)} times {given}: if the input "
            f"was not flattened, write x.flatten(1) before this line; else make the layer nn.Linear({given}, {out})."
        )
    if rows == wanted:
        return f"the input's axes are exchanged ({rows} and {given}): transpose it, so that its last size is {wanted}."
    return (
        f"make the layer nn.Linear({given}, {out}), if {given} features are what should arrive; else look at the "
        f"steps before it, which should give {wanted} features (flatten(1) keeps the batch axis)."
    )
