# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.values import static_attribute_lookup


class EmptyDataSet(Explainer):
    """A loader is made for a data set without samples.

    Means: len(data_set) is 0: the folder or list that it reads is empty, or the path is another one.

    Raises:
        DataLoader([], batch_size=4, shuffle=True)

    Works:
        DataLoader([1, 2, 3], batch_size=4, shuffle=True)

    Fix: print len(data_set) and the path that it reads (relative paths start where the script was started), the pattern of
    the file names, and how the split was made.

    Cases:
        otherwise: the data set is a {kind} of length 0.
    """

    messages = (
        r"num_samples should be a positive integer value, but got num_samples=0",
        r"Found 0 files in subfolders of",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        for frame in reversed(crash.frames):
            found, value = static_attribute_lookup(frame.locals().get("self"), "data_source")
            if found:
                return {"kind": type(value).__name__}
        return {}
