# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import describe_running_layer, input_sentence, layer_input


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

    Cases:
        `loose=`: the inner sizes are {given} and {wanted}{and_shapes}.
        `turned=either`: the left is {left}, the right {right}{and_shapes}.
            Fix: transpose one: a @ b.T has a value for each pair of rows, a.T @ b for each pair of columns.
        `turned=right`: the left is {left}, the right {right}{and_shapes}.
            Fix: transpose the right one: a @ b.T.
        `turned=left`: the left is {left}, the right {right}{and_shapes}.
            Fix: transpose the left one: a.T @ b.
        otherwise: the left is {left}, the right {right}{and_shapes}.
            Fix: look at where both are made: the columns of the left must be the rows of the right.
        otherwise: {who} {given} features where {wanted} are expected.
            Fix: {wanted} is {times} times {given}: if the input was not flattened, write x.flatten(1) before this line;
            else make the layer nn.Linear({given}, {out}).
        `exchanged=`: {who} {given} features where {wanted} are expected.
            Fix: the input's axes are exchanged ({rows} and {given}): transpose it, so that its last size is {wanted}.
        otherwise: {who} {given} features where {wanted} are expected.
            Fix: make the layer nn.Linear({given}, {out}), if {given} features are what should arrive; else look at the
            steps before it, which should give {wanted} features (flatten(1) keeps the batch axis).
    """

    messages = (
        r"mat1 and mat2 shapes cannot be multiplied \((?P<rows>\d+)x(?P<given>\d+) and (?P<wanted>\d+)x(?P<out>\d+)\)",
        r"shapes \(\d+,(?P<given>\d+)\) and \((?P<wanted>\d+),\d+\) not aligned",
        r"mat1 dim 1 must match mat2 dim 0",
        r"size mismatch, m1: \[(?P<rows>\d+) x (?P<given>\d+)\], m2: \[(?P<wanted>\d+) x (?P<out>\d+)\]",
        r"size mismatch, got (?:input|\w+) \(\d+\),? mat \(\d+x(?P<wanted>\d+)\),? vec \((?P<given>\d+)\)",
        r"Expected size for first two dimensions of batch2 tensor to be: \[\d+, (?P<given>\d+)\] but got: \[\d+, (?P<wanted>\d+)\]",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        sizes = {name: int(size) for name, size in match.groupdict().items() if size}
        if "given" not in sizes:
            return {}
        if "out" not in sizes:
            return {"loose": "yes"}
        rows, given, wanted, out = (sizes[name] for name in ("rows", "given", "wanted", "out"))
        if crash.is_live and crash.layer is None:
            turns = {(True, True): "either", (True, False): "right", (False, True): "left"}
            turned = turns.get((given == out, rows == wanted), "neither")
            return {"left": f"({rows}, {given})", "right": f"({wanted}, {out})", "turned": turned}
        who = f"{describe_running_layer(crash)}{input_sentence(crash)}:" if crash.layer else "the input has"
        # a row that is not flattened is a part of what is expected; an input of two axes has none to flatten
        arrived = layer_input(crash)
        is_part = wanted % given == 0 and given not in (1, wanted)
        is_part = is_part and rows * given % wanted == 0 and rows * given != wanted
        if is_part and (arrived is None or arrived.ndim > 2):
            return {"who": who, "times": str(wanted // given)}
        return {"who": who} | ({"exchanged": "yes"} if rows == wanted else {})
