# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class HiddenStateDoesNotFit(Explainer):
    """A recurrent layer gets a hidden state or an input of another size than it was made for.

    Means: inputs are (length, batch, input_size), with batch_first=True (batch, length, input_size); hidden states are (layers *
    directions, batch, hidden_size) in both cases.

    Raises:
        layer = nn.GRU(3, 4, batch_first=True)
        layer(torch.zeros(2, 5, 3), torch.zeros(1, 5, 4))

    Works:
        layer = nn.GRU(3, 4, batch_first=True)
        layer(torch.zeros(2, 5, 3), torch.zeros(1, 2, 4))

    Fix: make the state for this batch: torch.zeros(layers * directions, x.size(0), hidden_size) with batch_first=True (else
    x.size(1)), or leave it out for zeros; the last batch is smaller.

    Cases:
        otherwise: {layer}{input}: {found} features where {features} are expected.
            Fix: give nn.LSTM/GRU(input_size=...) the last size of the input, or put features last (x.transpose(1, 2)).
        `hx`: {layer}: the state has another number of axes than the input.
        otherwise: {layer} needs a state of ({wanted}), and got ({given}).
            Fix: the batch differs ({mine} in the state, {theirs} in the input): make the state from the input's batch size;
            look at batch_first, and at the smaller last batch.
        otherwise: {layer} needs a state of ({wanted}), and got ({given}).
    """

    messages = (
        r"Expected hidden(?:\[\d\])? size \((?P<wanted>[\d, ]+)\), got (?:\[|\()(?P<given>[\d, ]+)",
        r"input\.size\(-1\) must be equal to input_size\. Expected (?P<features>\d+), got (?P<found>\d+)",
        r"For batched 3-D input, hx (?:and cx )?should also be 3-D but got",
        r"For unbatched 2-D input, hx (?:and cx )?should also be 2-D but got",
    )
    checks = ("DATA015",)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        found = match.groupdict()
        wanted, given = ((found.get(name) or "").replace(" ", "").split(",") for name in ("wanted", "given"))
        if len(wanted) == len(given) == 3 and wanted[0] == given[0] and wanted[2] == given[2]:
            return {"mine": given[1], "theirs": wanted[1]}
        return {}
