# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class SamplesOfUnequalSizes(Explainer):
    """Samples of different sizes are put into one batch.

    Means: a batch is one tensor, so that all of its samples must have the same shape.

    Raises:
        loader = DataLoader([torch.zeros(3), torch.zeros(4)], batch_size=2)
        next(iter(loader))

    Works:
        def pad(samples):
            return nn.utils.rnn.pad_sequence(samples, batch_first=True)

        loader = DataLoader([torch.zeros(3), torch.zeros(4)], batch_size=2, collate_fn=pad)
        next(iter(loader))

    Fix: bring the samples to one size in the data set: Resize((224, 224)) or a crop for images (Resize(224) keeps the
    aspect ratio, and so two sizes); for sequences pass collate_fn=, with pad_sequence.

    Cases:
        `mixed=`: sample 0 of the batch is ({first}), sample {entry} is ({second}){data_set}.
            Fix: images of {mixed} channels are mixed: write image.convert("RGB") when loading them.
        `short=`: sample 0 of the batch is ({first}), sample {entry} is ({second}){data_set}.
            Fix: sequences of different lengths: pass collate_fn= to the DataLoader, with nn.utils.rnn.pad_sequence.
        otherwise: sample 0 of the batch is ({first}), sample {entry} is ({second}){data_set}.
    """

    messages = (
        r"to be equal size, but got \[(?P<first>[\d, ]*)\] at .* and \[(?P<second>[\d, ]*)\] at entry (?P<entry>\d+)",
        r"each element in list of batch should be of equal size",
        r"Trying to resize storage that is not resizable",
        r"all input arrays must have the same shape",
        r"Unable to create tensor, you should probably activate truncation and/or padding",
    )
    not_in_a_log = "which samples they are"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        sizes = match.groupdict()
        if sizes.get("entry") is None:
            return {}
        first, second = (
            [int(size) for size in sizes[name].split(",") if size.strip()] for name in ("first", "second")
        )
        if len(first) == len(second) == 3 and first[0] != second[0] and {first[0], second[0]} <= {1, 3, 4}:
            return {"mixed": f"{first[0]} and {second[0]}"}
        return {"short": "yes"} if len(first) <= 2 else {}
