# SPDX-License-Identifier: Apache-2.0
"""What an operation on a tensor gives: its numbers, its shape, and whether a gradient finds its way back.

The names are those of the method, of the function in `torch` or `torch.nn.functional`, and of the layer in lower case.
`tests/doctor/test_library.py` runs every operation that takes a tensor alone, and holds the columns to what torch does.
"""

from functools import cache
from typing import NamedTuple

# numbers   kept: the same · itself: in place · home: the same, if no type was chosen before · moved: elsewhere, or of
#           another type · rounded: cast · whole: integers or truth values · indices: as classes are counted ·
#           averaged, reduced: one of many · picked: some of them · share: probabilities · log-share: their logarithms ·
#           logarithm: of whatever · projected: by weights · rectified: not below 0, often 0 · dropped: some are 0 ·
#           activated, computed: one by one · multiplied: with others · ordered, equal: compared with others · index:
#           places · chosen: the greatest or least · stepped: to the next whole number or sign · measured: about the
#           tensor · drawn, filled, copied, joined: a new tensor
# shape     same · other: the same numbers in another · turned: other axes · fewer: an axis less · gone: no tensor ·
#           broadcast: with another's · changed: in other ways · for new tensors: sized, counted, square, like, given
# graph     kept · zero: kept, and the gradient is 0 · cut: none · left: it is no tensor of torch's any more
# backward  result: it needs what was computed, so that may not be changed in place · -
_TABLE = """
clone contiguous cpu pin_memory identity                    kept       same       kept  -
detach                                                      kept       same       cut   -
numpy                                                       kept       same       left  -
item tolist                                                 kept       gone       left  -
requires_grad_                                              itself     same       kept  -
detach_ data                                                itself     same       cut   -
float                                                       home       same       kept  -
to cuda xpu type type_as                                    moved      same       kept  -
double half bfloat16                                        rounded    same       kept  -
int short char bool                                         whole      same       cut   -
long byte                                                   indices    same       cut   -
view view_as reshape reshape_as flatten unflatten ravel     kept       other      kept  -
squeeze unsqueeze expand expand_as                          kept       other      kept  -
permute transpose t swapaxes swapdims movedim moveaxis      kept       turned     kept  -
gather index_select narrow take select                      picked     changed    kept  -
mean sum nanmean nansum                                     averaged   fewer      kept  -
var                                                         reduced    fewer      kept  -
std amax amin norm logsumexp prod                           reduced    fewer      kept  result
max min topk sort                                           chosen     fewer      kept  -
argmax argmin argsort                                       index      fewer      cut   -
gt ge lt le greater greater_equal less less_equal           ordered    broadcast  cut   -
eq ne not_equal                                             equal      broadcast  cut   -
sign sgn round floor ceil trunc                             stepped    same       zero  -
size dim shape numel ndim stride is_floating_point          measured   gone       left  -
softmax softmin softmax2d sigmoid gumbel_softmax            share      same       kept  result
hardsigmoid                                                 share      same       kept  -
log_softmax                                                 log-share  same       kept  result
logsigmoid log_sigmoid                                      log-share  same       kept  -
log                                                         logarithm  same       kept  -
linear conv1d conv2d conv3d bilinear                        projected  changed    kept  -
relu relu_                                                  rectified  same       kept  result
relu6                                                       rectified  same       kept  -
dropout dropout1d dropout2d dropout3d alpha_dropout         dropped    same       kept  -
feature_alpha_dropout                                       dropped    same       kept  -
tanh                                                        activated  same       kept  result
leaky_relu elu selu celu gelu silu mish softplus            activated  same       kept  -
prelu rrelu hardswish softsign                              activated  same       kept  -
exp exp2 expm1 sqrt rsqrt reciprocal tan pow                computed   same       kept  result
cumprod logcumsumexp                                        computed   same       kept  result
abs neg square log1p sin cos clamp hardtanh erf cumsum      computed   same       kept  -
matmul bmm mm einsum baddbmm addmm                          multiplied changed    kept  -
mul multiply                                                multiplied broadcast  kept  -
rand randn randint                                          drawn      sized      cut   -
zeros ones empty full                                       filled     sized      cut   -
normal bernoulli                                            drawn      given      cut   -
randperm                                                    drawn      counted    cut   -
arange linspace logspace                                    filled     counted    cut   -
eye                                                         filled     square     cut   -
rand_like randn_like randint_like                           drawn      like       cut   -
zeros_like ones_like full_like empty_like                   filled     like       cut   -
tensor as_tensor asarray from_numpy                         copied     given      cut   -
Tensor FloatTensor DoubleTensor LongTensor                  copied     given      cut   -
stack cat concat hstack vstack                              joined     given      kept  -
"""


class Operation(NamedTuple):
    """One row, for one name."""

    name: str
    numbers: str
    shape: str
    graph: str
    backward: str


def _parse_operations() -> tuple[Operation, ...]:
    rows = [line.split() for line in _TABLE.strip().splitlines()]
    return tuple(Operation(name, *row[-4:]) for row in rows for name in row[:-4])


OPERATIONS = _parse_operations()


@cache
def operations(*, numbers: str = "", shape: str = "", graph: str = "", backward: str = "") -> frozenset[str]:
    """Return the names of the operations that have one of these values in each column that is asked for.

    `operations(numbers="moved rounded", graph="kept")`
    """
    asked = {"numbers": numbers, "shape": shape, "graph": graph, "backward": backward}
    wanted = {column: values.split() for column, values in asked.items() if values}
    return frozenset(
        each.name
        for each in OPERATIONS
        if all(getattr(each, column) in values for column, values in wanted.items())
    )


# What most who ask mean: the tensor itself, elsewhere or of another type; a new one; one without a way back.
SAME_NUMBERS = operations(numbers="kept itself home moved rounded")
MAKERS = operations(numbers="drawn filled copied")
# those that lists, texts and tables of other libraries have not: whoever calls them has a tensor, or an array
OF_TENSORS_ALONE = frozenset(
    [
        "detach",
        "contiguous",
        "unsqueeze",
        "squeeze",
        "permute",
        "expand_as",
        "view_as",
        "type_as",
        "masked_fill",
        "masked_scatter",
        "index_fill",
        "index_copy",
        "clamp",
        "clip",
        "softmax",
        "log_softmax",
        "sigmoid",
        "logsigmoid",
    ]
)
CUTS = operations(graph="cut zero left") - MAKERS
