# SPDX-License-Identifier: Apache-2.0
"""What is given to another library, or comes from one, in a place where it would not work is refused with the line to write.

A learner in the place of a module or of parameters, and what only looks at it; schedules that were made already.
"""

import json

import pytest

import frameworks

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from

PRELUDE = """
import json, tempfile, warnings
import torch, truestep as ts
from torch import nn
warnings.simplefilter("ignore")
run = ts.Run("run", progress=False, doctor=False, device="cpu")
net = run.learner(nn.Sequential(nn.Linear(4, 2)), lambda p: torch.optim.AdamW(p, lr=1e-3))
both = run.learner({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)}, lambda p: torch.optim.AdamW(p, lr=1e-3), name="both")
inputs = torch.randn(8, 4)
said = {}
def say(**cases):
    for name, case in cases.items():
        try:
            case()
            said[name] = "nothing"
        except ts.OptionError as error:
            said[name] = str(error)
"""
TORCH = (
    PRELUDE
    + """
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import parametrizations, parametrize, prune
def bare():
    number = len(run.context.learners)
    return run.learner(nn.Linear(4, 2), lambda p: torch.optim.SGD(p, lr=0.1), name=f"bare_{number}")
torch.distributed.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
class Kind(type): pass
class Known(metaclass=Kind): pass
say(
    adamw=lambda: torch.optim.AdamW(net, lr=1e-3),
    sgd_by_name=lambda: torch.optim.SGD(params=net, lr=1e-3),
    sgd_of_a_list=lambda: torch.optim.SGD([net], lr=1e-3),
    sgd_of_groups=lambda: torch.optim.SGD([{"params": net}, {"params": both}], lr=1e-3),
    clip=lambda: nn.utils.clip_grad_norm_(net, 1.0),
    ddp=lambda: nn.parallel.DistributedDataParallel(net),
    data_parallel=lambda: nn.DataParallel(net),
    shard=lambda: fully_shard(net),
    sequential=lambda: nn.Sequential(net, nn.ReLU()),
    module_list=lambda: nn.ModuleList([net]),
    module_dict=lambda: nn.ModuleDict({"a": net}),
    export=lambda: torch.export.export(net, (inputs,)),
    trace=lambda: torch.jit.trace(net, inputs),
    script=lambda: torch.jit.script(net),
    onnx=lambda: torch.onnx.export(net, (inputs,), "net.onnx"),
    prune=lambda: prune.l1_unstructured(net, "weight", amount=0.3),
    prune_layer=lambda: prune.random_unstructured(bare(), name="weight", amount=0.3),
    prune_all=lambda: prune.global_unstructured([(net, "weight")], pruning_method=prune.L1Unstructured, amount=0.2),
    unprune=lambda: prune.remove(net, "weight"),
    weight_norm=lambda: parametrizations.weight_norm(bare()),
    old_weight_norm=lambda: nn.utils.weight_norm(net),
    spectral_norm=lambda: parametrizations.spectral_norm(net),
    old_spectral_norm=lambda: nn.utils.spectral_norm(bare()),
    orthogonal=lambda: parametrizations.orthogonal(bare()),
    parametrized=lambda: parametrize.register_parametrization(bare(), "weight", nn.Identity()),
    vector=lambda: nn.utils.parameters_to_vector(net),
    vector_of_a_layer=lambda: nn.utils.parameters_to_vector(bare()),
    vector_back=lambda: nn.utils.vector_to_parameters(torch.zeros(10), net),
    init=lambda: nn.init.xavier_uniform_(net),
    called_layer=lambda: torch.func.functional_call((layer := bare()), dict(layer.named_parameters()), (inputs,)),
    is_pruned=lambda: 1 / (not prune.is_pruned(net) and not parametrize.is_parametrized(net)),
    bare_is_whole=lambda: [each["weight"] for each in [dict(bare().named_parameters())]],
    parts=lambda: (net[0](inputs), [each for each in net.module], both["a"](inputs), net._modules, net[-1]),
    pruned_before=lambda: prune.l1_unstructured(net.module[0], "bias", amount=0.3),
    held=Holder,
    asked=lambda: [isinstance(net, each) for each in (nn.Module, torch.Tensor, dict, Known)],
    right_class=lambda: 1 / (net.__class__ is type(net)),
    compiled=lambda: torch.compile(lambda x: net(x), backend="eager", fullgraph=True)(inputs),
    compiled_itself=lambda: torch.compile(net, backend="eager")(inputs),
    called=lambda: torch.func.functional_call(net.module, dict(net.named_parameters()), (inputs,)),
    parameters=lambda: torch.optim.SGD([*net.parameters(), *both["a"].parameters()], lr=1e-3),
)
torch.distributed.destroy_process_group()
print(json.dumps(said))
"""
)
LIBRARIES = (
    PRELUDE
    + """
import logging
import accelerate, lightning, transformers
logging.getLogger("lightning").setLevel(logging.ERROR)
arguments = transformers.TrainingArguments("theirs", report_to="none", use_cpu=True, disable_tqdm=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def scheduled(schedule):
    run.learner(nn.Linear(4, 2), lambda p: torch.optim.SGD(p, lr=0.1), schedule=schedule)
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
say(
    trainer=lambda: transformers.Trainer(net, arguments, train_dataset=[1]),
    trainer_by_name=lambda: transformers.Trainer(model=net, args=arguments),
    seq2seq=lambda: transformers.Seq2SeqTrainer(net, transformers.Seq2SeqTrainingArguments(
        "theirs", report_to="none", use_cpu=True, disable_tqdm=True)),
    prepare=lambda: accelerate.Accelerator(cpu=True).prepare(net),
    prepare_all=lambda: accelerate.Accelerator(cpu=True).prepare(optimizer, net),
    fit=lambda: lightning.Trainer(logger=False, accelerator="cpu").fit(net),
    validate=lambda: lightning.Trainer(logger=False, accelerator="cpu").validate(net),
    fabric=lambda: lightning.Fabric(accelerator="cpu").setup(net),
    linear=lambda: scheduled(transformers.get_linear_schedule_with_warmup(optimizer, 10, 100)),
    by_name=lambda: scheduled(transformers.get_scheduler("cosine", optimizer, 10, 100)),
    constant=lambda: scheduled(transformers.get_constant_schedule_with_warmup(optimizer, 10)),
    unnamed=lambda: scheduled(transformers.get_constant_schedule(optimizer)),
    plateau=lambda: scheduled(torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)),
    one_cycle=lambda: scheduled(torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 100)),
    held=Module,
    prepare_module=lambda: accelerate.Accelerator(cpu=True).prepare(net.module),
)
print(json.dumps(said))
"""
)
IS_PARAMETERS, IS_MODULE = "Write net.parameters()", "net.module"
LAYER = "above net = run.learner(model, optimizer)"
SAYS = {
    TORCH: {
        "adamw": "A learner has the optimizer that run.learner was given",
        "sgd_by_name": IS_PARAMETERS,
        "sgd_of_a_list": IS_PARAMETERS,
        "sgd_of_groups": IS_PARAMETERS,
        "clip": "clip=ts.ClipNorm(1.0)",
        "ddp": "Leave the wrapper out",
        "data_parallel": "Leave the wrapper out",
        "shard": 'strategy="fsdp"',
        "sequential": IS_MODULE,
        "module_list": IS_MODULE,
        "module_dict": IS_MODULE,
        "export": IS_MODULE,
        "trace": IS_MODULE,
        "script": IS_MODULE,
        "onnx": IS_MODULE,
        "prune": LAYER,
        "prune_layer": LAYER,
        "prune_all": LAYER,
        "unprune": LAYER,
        "weight_norm": LAYER,
        "old_weight_norm": LAYER,
        "spectral_norm": LAYER,
        "old_spectral_norm": LAYER,
        "orthogonal": LAYER,
        "parametrized": LAYER,
        "vector": IS_PARAMETERS,
        "vector_of_a_layer": IS_PARAMETERS,
        "vector_back": IS_PARAMETERS,
        "init": "net.module[0].weight",
        "called_layer": IS_MODULE,
        "is_pruned": "nothing",
        "bare_is_whole": "nothing",
        "parts": "nothing",
        "pruned_before": "nothing",
        "held": "nothing",
        "asked": "nothing",
        "right_class": "nothing",
        "compiled": "nothing",
        "compiled_itself": "nothing",
        "called": "nothing",
        "parameters": "nothing",
    },
    LIBRARIES: {
        "trainer": "Trainer(net.module",
        "trainer_by_name": "Trainer(net.module",
        "seq2seq": "Trainer(net.module",
        "prepare": "accelerator.prepare(net.module",
        "prepare_all": "accelerator.prepare(net.module",
        "fit": "trainer.fit(net.module",
        "validate": "trainer.fit(net.module",
        "fabric": "fabric.setup(net.module",
        "linear": "write schedule=lambda o: transformers.get_linear_schedule_with_warmup(o, ...).",
        "by_name": "write schedule=lambda o: transformers.get_cosine_schedule_with_warmup(o, ...).",
        "constant": "write schedule=lambda o: transformers.get_constant_schedule_with_warmup(o, ...).",
        "unnamed": "LambdaLR(o, ...), which is stepped after each update",
        "plateau": 'write schedule=lambda o: ts.plateau(o, metric="accuracy").',
        "one_cycle": "OneCycleLR(o, ...), which is stepped after each update",
        "held": "nothing",
        "prepare_module": "nothing",
    },
}


@pytest.mark.parametrize(
    "program",
    [pytest.param(TORCH, id="torch"), pytest.param(LIBRARIES, marks=pytest.mark.slow, id="libraries")],
)
def test_who_takes_a_module_is_told_that_a_learner_is_none(program, tmp_path):
    done = frameworks.run("-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    expected = SAYS[program]
    assert {name: words in said[name] for name, words in expected.items()} == dict.fromkeys(said, True), said
