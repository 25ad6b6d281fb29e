# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ImageOfOtherKind(Explainer):
    """An image transform gets a tensor where it takes a picture, or the other way round.

    Means: of a Compose each step gets what the step before gives: pictures before ToTensor, tensors after it.

    Recorded:
        Traceback (most recent call last):
          File "/home/me/project/data.py", line 21, in __getitem__
            return self.transform(image), label
          File "/opt/venv/lib/python3.11/site-packages/torchvision/transforms/functional.py", line 142, in to_tensor
            raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
        TypeError: pic should be PIL Image or ndarray. Got <class 'torch.Tensor'>

    Fix: order the steps: resizing and colours of pictures, then ToTensor() once, then Normalize and RandomErasing. Take ToTensor
    away where the data set gives tensors; make pictures of arrays with Image.fromarray or ToPILImage().

    Cases:
        `Tensor;`: the transform got a tensor: ToTensor() came before it, or the
            data set gives tensors already.
        `ndarray;`: the transform got a NumPy array.
            Fix: write Image.fromarray(array) first, or ToPILImage().
        `kind=PIL.` or `Image;`: the transform got a picture that no step has made a tensor yet.
            Fix: put ToTensor() before it.
    """

    types = ("TypeError",)
    messages = (
        r"pic should be (?:PIL Image or ndarray|Tensor or ndarray|2/3 dimensional)\. Got (?:<class ')?(?P<kind>[\w.]+)",
        r"img should be (?:PIL Image|Tensor Image|numpy array)\. Got (?:<class ')?(?P<kind>[\w.]+)",
        r"Input tensor should be a (?:float|torch) tensor\. Got (?:<class ')?(?P<kind>[\w.]+)",
        r"(?:tensor|[Ii]nput) should be a torch tensor\. Got (?:<class ')?(?P<kind>[\w.]+)",
        r"Unexpected type <class '(?P<kind>numpy\.ndarray|torch\.Tensor|PIL[\w.]*)'>",
    )
    not_in_a_log = "the order of the transforms"
