# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import (
    describe_running_layer,
    describe_value_with_origin,
    layer_input,
    tensors_on_line_where,
)
from truestep.explainer.values import tensor_dtype_name


class DtypesDiffer(Explainer):
    """Two tensors of different dtypes meet where torch does not convert, as input and weights of a layer do.

    Means: matrix products and layers need one dtype; only autocast converts, and only inside its block.

    Raises:
        layer, samples = nn.Linear(2, 2), torch.from_numpy(np.zeros((4, 2)))
        layer(samples)

    Works:
        layer, samples = nn.Linear(2, 2), torch.from_numpy(np.zeros((4, 2)))
        layer(samples.float())

    Fix: write x.float() where NumPy's float64 or integer images enter; for a half model convert the inputs too, or keep
    the model in float32 and compute within torch.autocast.

    Cases:
        `pair=int64 float32;`: {says}.
            Fix: if {name} are labels, inputs and labels have changed places: take the batch apart in the order that the
            data set gives, x, y = batch. For inputs that are whole numbers write {name}.float().
        `pair=uint8 float32;`: {says}.
            Fix: these are images of 0 to 255: write {name}.float() / 255, and normalise them as the model was trained.
        `case=half values`: {says}.
            Fix: the values are {mine}, the weights float32: outside autocast a value from inside it keeps its {mine}. Write
            {name}.float(), or move this line into the torch.autocast block.
        `case=half weights`: {says}.
            Fix: the weights are {theirs}: write {name}.to({theirs}), or, better for training, keep the weights in float32
            and run the forward within torch.autocast(device, dtype=torch.{theirs}).
        `pair=float64 float32;`: {says}.
            Fix: write {name}.float(), or np.float32 where the array is made: NumPy's own is float64.
        `theirs=float32;`: {says}. Fix: write {name}.float().
        `pair=float32 float64;`: {says}.
            Fix: the weights became float64: look for .double() and torch.set_default_dtype; write model.float().
        `theirs=int64;`: {says}. Fix: indices and class labels are int64: write {name}.long().
        otherwise: {says}.
    """

    messages = (
        r"mat1 and mat2 must have the same dtype, but got (?P<first>\w+) and (?P<second>\w+)",
        r"mat1 and mat2 must have the same dtype",
        r"expected m1 and m2 to have the same dtype, but got: (?P<first>[\w:]+) != (?P<second>[\w:]+)",
        (
            r"Input type \((?P<where>torch\.cuda\.|torch\.|)(?P<first>(?!cuda\.|torch\.)[^()]*(?:\([^)]*\))?)\) and "
            r"(?:bias|weight) type \((?P=where)(?P<second>(?!cuda\.|torch\.)[^()]*)\) should be the same"
        ),
        r"expected scalar type (?P<second>(?!Long)\w+) but (?:found|got) (?P<first>\w+)",
        r"Expected object of scalar type (?P<second>\w+) but got scalar type (?P<first>\w+)",
        r"Found dtype (?P<first>\w+) but expected (?P<second>\w+)",
        r"RNN input dtype \((?P<first>[\w.]+)\) does not match weight dtype \((?P<second>[\w.]+)\)",
        r"expected (?:m1|self|query|\w+) (?:and \w+ )?to have the same dtype",
        r"Expected query, key, and value to have the same dtype, but got query\.dtype: (?P<first>\w+) key\.dtype: (?P<second>\w+)",
        r"[Ee]xpected dtype (?P<first>\w+) for `\w+` but got dtype (?P<second>\w+)",
        r"self and mat2 must have the same dtype, but got (?P<first>\w+) and (?P<second>\w+)",
        r"Index put requires the source and destination dtypes match, got (?P<second>\w+) for the destination and (?P<first>\w+)",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        found, halves = match.groupdict(), ("float16", "bfloat16")
        first, second = _python_dtype_name(found.get("first")), _python_dtype_name(found.get("second"))
        if not first:
            return {}
        tensor = layer_input(crash)
        wanted = first if tensor is None else tensor_dtype_name(tensor)
        named = tensors_on_line_where(crash, lambda each: tensor_dtype_name(each) == wanted)
        where = f" in {describe_running_layer(crash)}" if crash.layer is not None else ""
        made = f": {describe_value_with_origin(crash, named[0])}" if named else ""
        facts = {"says": f"{first} meets {second}{where}{made}", "name": named[0].name if named else "x"}
        facts |= {"mine": first, "theirs": second, "pair": f"{first} {second}"}
        values = second == "float32" and first in halves
        return facts | {"case": "half values" if values else "half weights" if second in halves else ""}


_NAMES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Byte": "uint8", "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "unsigned char": "uint8", "long": "int64", "long int": "int64",
}  # fmt: skip


def _python_dtype_name(name: str | None) -> str:
    """Return a dtype's name as Python has it, of the many that messages use."""
    text = (name or "").strip().removeprefix("torch.")
    kind = text.rpartition(".")[2].removesuffix("Tensor")
    return _NAMES.get(text) or _NAMES.get(kind) or text
