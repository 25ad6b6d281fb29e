# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ArrayNotForTorch(Explainer):
    """A NumPy array or list can't become a tensor: ragged, of objects, or with negative strides.

    Means: a tensor holds numbers of one dtype in a regular grid; object arrays and lists of uneven lengths do not.

    Raises:
        table = np.array([None, 1], dtype=object)
        torch.tensor(table)

    Works:
        table = np.array([0, 1], dtype=np.float32)
        torch.tensor(table)

    Fix: give the columns a numeric dtype (df.astype("float32"), missing values filled), pad uneven rows, and write
    array.copy() after a flip or [::-1].

    Cases:
        `np.ndarray of type`: the array's dtype is {dtype}: a column holds text, None or lists.
        `stride`: the array is a reversed view, as flips give.
            Fix: write array.copy() (np.ascontiguousarray(array)).
        `expected sequence`: a row of length {second} stands beside rows of length {first}.
            Fix: pad the rows.
    """

    messages = (
        r"can't convert np\.ndarray of type (?P<dtype>numpy\.\w+)",
        r"At least one stride in the given numpy array is negative",
        r"some of the strides of a given numpy array are negative",
        r"expected sequence of length (?P<first>\d+) at dim (?P<axis>\d+) \(got (?P<second>\d+)\)",
        r"setting an array element with a sequence",
    )
