# SPDX-License-Identifier: Apache-2.0
"""Trainings by other frameworks, killed inside an epoch, end with the bits of one that never was."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import frameworks
import truestep as ts
from truestep.frameworks.repeatable_loader_passes import KeyedPasses, refuse_loader, refuse_processes

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from
FRAMEWORKS = ("lightning", "transformers", "accelerate")


def check_kills(folder, names, workers, kills):
    words = [Path(__file__).parent / "killing.py", ",".join(names), workers, kills, 5, folder]
    done = frameworks.run(*words, timeout=3600)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert {name: set(each["ends"]) for name, each in report.items()} == {
        name: {report[name]["plain"]} for name in names
    }, done.stderr


def test_a_kill(tmp_path):
    check_kills(tmp_path, FRAMEWORKS, 0, 1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_twenty_kills(tmp_path, framework, workers):
    check_kills(tmp_path, [framework], workers, 20)


def drawn(loader, place=None):
    """Return the batches of a pass that is trained on, keyed, and leave the streams as they were."""
    passes = KeyedPasses()
    passes.begin(place or {})
    passes.await_pass(3, lambda: loader)
    try:
        return [batch.tolist() for batch in loader], passes.place(0)
    finally:
        passes.end()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("habit", ["global", "own", "stream", "sampler", "weighted"])
def test_a_pass_that_is_gone_through_again_gives_the_same_batches(workers, habit):
    from frameworks.loaders import HABITS

    def loader():
        return HABITS[habit](workers)

    whole, place = drawn(loader())
    for skip in (1, 4):
        left, _ = drawn(loader(), {**place, "batches": skip})
        assert left == whole[skip:]


def test_torch_iterates_as_before_when_it_is_over():
    before = DataLoader.__iter__
    drawn(DataLoader(list(range(6)), batch_size=2))
    assert DataLoader.__iter__ is before


def test_an_evaluation_draws_other_numbers_each_time_and_moves_no_stream():
    import torch

    from frameworks.loaders import HABITS

    passes = KeyedPasses()
    passes.begin({})
    try:
        state = torch.get_rng_state()
        one = [batch.tolist() for batch in HABITS["global"](0)]
        assert torch.equal(state, torch.get_rng_state())
        torch.rand(1)
        assert one != [batch.tolist() for batch in HABITS["global"](0)]
    finally:
        passes.end()


def test_several_processes_are_refused_by_name():
    with pytest.raises(ts.OptionError, match="Lightning trains on 4"):
        refuse_processes(4, "Lightning")


@pytest.mark.parametrize(
    ("loader", "says"),
    [([1, 2], "builtins.list"), (DataLoader([1, 2], in_order=False), "in_order=False")],
)
def test_loaders_that_cannot_be_gone_through_again_are_refused(loader, says):
    with pytest.raises(ts.OptionError, match=says):
        refuse_loader(loader)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_importing_truestep_imports_no_framework(framework):
    code = f"import sys, truestep as ts; ts.{framework}; print(*{{'lightning', 'transformers', 'accelerate'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


CROSSED = """
import truestep as ts
from transformers.trainer_callback import CallbackHandler
handler = CallbackHandler([ts.lightning.ExactResume("exact")], None, None, None, None)
try:
    handler.on_init_end(None, None, None)
except AttributeError as error:
    print(error)
"""


def test_lightnings_callback_given_to_the_trainer_of_transformers_names_the_right_one(tmp_path):
    """Before anything trains; in a process of its own, since these libraries set variables when they are imported."""
    done = frameworks.run("-c", CROSSED, cwd=tmp_path)
    assert "Write ts.transformers.ExactResume(directory)." in done.stdout


def check_early(folder, library, seed, count):
    """A training that asks early for its loader ends with the same bits after a kill, or is refused; so does a third start."""
    done = frameworks.run(Path(__file__).parent / "early.py", library, seed, count, folder, timeout=3600)
    assert done.returncode == 0, done.stderr
    for each in json.loads(done.stdout.splitlines()[-1]):
        if each["habits"]["makes"] == "alike":
            assert each["again"] == each["third"] == each["plain"], each
        elif each["was_saved"]:  # else it begins anew, with data of its own
            for end in (each["again"], each["third"]):
                assert end == each["plain"] or "holds other numbers than before the kill" in end, each


@pytest.mark.parametrize(("library", "count"), [("lightning", 4), ("transformers", 2), ("accelerate", 3)])
def test_a_loader_that_is_asked_for_early(tmp_path, library, count):
    check_early(tmp_path, library, 1, count)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
@pytest.mark.parametrize("library", FRAMEWORKS)
def test_forty_loaders_that_are_asked_for_early(tmp_path, library, seed):
    check_early(tmp_path, library, seed, 10)


LOOKING = """
import os, signal, sys
sys.path.insert(0, {here!r})
import torch, transformers, truestep as ts
from torch.utils.data import DataLoader
from trainings import Net, Pairs, quiet
quiet()
transformers.utils.logging.disable_progress_bar()

class Looking(transformers.TrainerCallback):
    def on_epoch_begin(self, args, state, control, **given):
        if {looks}:
            self.mean = sum(batch["x"].mean() for batch in DataLoader(Pairs(), 17))

def train(folder, kill_at=-1):
    transformers.set_seed(1)
    net, seen = Net(), []
    def count(*_):
        seen.extend([1] * net.training)
        if len(seen) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    net.body[0].register_forward_pre_hook(count)
    exact = ts.transformers.ExactResume(folder + "/exact")
    arguments = transformers.TrainingArguments(
        folder + "/theirs", num_train_epochs=3, per_device_train_batch_size=4, save_strategy="steps", save_steps=2, report_to=[],
        disable_tqdm=True, use_cpu=True, remove_unused_columns=False)
    trainer = transformers.Trainer(net, arguments, train_dataset=Pairs(), eval_dataset=Pairs(), callbacks=[exact, Looking()])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=exact.checkpoint)
    return sum(each.double().sum().item() for each in net.parameters()).hex()

plain = train("plain")
if not (child := os.fork()):
    train("killed", 13)
os.waitpid(child, 0)
print(plain, train("killed"))
"""


@pytest.mark.parametrize("looks", [False, True])
def test_a_callback_that_looks_at_data_when_an_epoch_begins_takes_no_pass_from_the_trainer(tmp_path, looks):
    code = LOOKING.format(here=str(Path(__file__).parent), looks=looks)
    done = frameworks.run("-c", code, cwd=tmp_path)
    plain, again = done.stdout.split()
    assert again == plain, done.stderr


ONE_SHOT = """
import lightning, torch, truestep as ts
from torch.utils.data import DataLoader, IterableDataset

class OneShot(IterableDataset):
    def __init__(self):
        self.rows = iter(range(12))
    def __iter__(self):
        return (torch.tensor([float(row)]) for row in self.rows)

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.seen = torch.nn.Linear(1, 1), []
    def training_step(self, batch, _):
        self.seen += batch.flatten().tolist()
        return self.net(batch / 12).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

module, exact = Module(), ts.lightning.ExactResume("exact")
trainer = lightning.Trainer(max_epochs=1, callbacks=[exact], logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
trainer.fit(module, DataLoader(OneShot(), 4), ckpt_path=exact.checkpoint)
assert module.seen == list(range(12)), module.seen
"""


def test_a_stream_that_can_be_read_once_loses_no_batch_at_the_first_start(tmp_path):
    done = frameworks.run("-c", ONE_SHOT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


OVER = """
import sys
sys.path.insert(0, {here!r})
import transformers, truestep as ts
from trainings import Net, Pairs, quiet
quiet()
transformers.utils.logging.disable_progress_bar()

def end(folder, accumulation, **length):
    transformers.set_seed(1)
    net, exact = Net(), ts.transformers.ExactResume(folder + "/exact")
    arguments = transformers.TrainingArguments(
        folder + "/theirs", **length, per_device_train_batch_size=4, save_steps=3, report_to=[], disable_tqdm=True, use_cpu=True,
        lr_scheduler_type="constant", learning_rate=0.1, gradient_accumulation_steps=accumulation, remove_unused_columns=False)
    trainer = transformers.Trainer(net, arguments, train_dataset=Pairs(), callbacks=[exact])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=exact.checkpoint)
    return trainer.state.global_step, sum(each.double().sum().item() for each in net.parameters()).hex()

for number, (accumulation, length) in enumerate(
    ((1, dict(max_steps=5)), (1, dict(max_steps=9)), (2, dict(max_steps=7)), (2, dict(num_train_epochs=2)))
):
    assert len(ends := {{end(str(number), accumulation, **length) for _ in range(3)}}) == 1, (accumulation, length, ends)
"""


def test_a_trainer_that_is_over_trains_no_further_step_when_it_is_started_again(tmp_path):
    done = frameworks.run("-c", OVER.format(here=str(Path(__file__).parent)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


HOLDING = """
import copy, os, signal, sys
sys.path.insert(0, {here!r})
import torch, transformers, truestep as ts
from trainings import Net, Pairs, quiet
quiet()
transformers.utils.logging.disable_progress_bar()

class Averages(transformers.TrainerCallback):
    def __init__(self, model):
        self.model, self.shadow = model, {{name: each.detach().clone() for name, each in model.named_parameters()}}
        self.slow, self.averaged, self.seen = copy.deepcopy(model), torch.optim.swa_utils.AveragedModel(model), []

    def on_step_end(self, args, state, control, model=None, **given):
        self.averaged.update_parameters(model)
        self.seen.append(state.global_step)
        with torch.no_grad():
            for (name, each), slow in zip(model.named_parameters(), self.slow.parameters()):
                self.shadow[name].mul_(0.9).add_(each, alpha=0.1)
                slow.lerp_(each, 0.2)

def end(folder, kill_at=-1):
    transformers.set_seed(1)
    net, seen = Net(), []
    def count(*_):
        seen.extend([1] * net.training)
        if len(seen) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    net.body[0].register_forward_pre_hook(count)
    exact, averages = ts.transformers.ExactResume(folder + "/exact"), Averages(net)
    arguments = transformers.TrainingArguments(
        folder + "/theirs", num_train_epochs=6, per_device_train_batch_size=4, save_steps=2, report_to=[], disable_tqdm=True,
        eval_strategy="steps", eval_steps=2, load_best_model_at_end=True, metric_for_best_model="loss", learning_rate=0.02,
        use_cpu=True, remove_unused_columns=False)
    trainer = transformers.Trainer(net, arguments, train_dataset=Pairs(), eval_dataset=Pairs(),
        callbacks=[exact, averages, transformers.EarlyStoppingCallback({patience})])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=exact.checkpoint)
    held = [*net.parameters(), *averages.shadow.values(), *averages.slow.parameters(), *averages.averaged.parameters()]
    return trainer.state.global_step, averages.seen, sum(each.double().sum().item() for each in held).hex()

plain = end("plain")
for moment in (5, plain[0] - 1):
    if not (child := os.fork()):
        end(str(moment), moment)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert (again := end(str(moment))) == plain, (moment, again, plain)
"""


@pytest.mark.parametrize("patience", [4, 9])
def test_a_trainers_callbacks_go_on_with_what_they_hold(tmp_path, patience):
    code = HOLDING.format(here=str(Path(__file__).parent), patience=patience)
    done = frameworks.run("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


HOLDING_IN_LIGHTNING = """
import copy, os, signal, sys
sys.path.insert(0, {here!r})
import lightning, torch, truestep as ts
from torch.utils.data import DataLoader
from trainings import Net, Pairs, quiet
quiet()

class Averages(lightning.Callback):
    def __init__(self):
        self.slow = self.averaged = None
        self.seen = []

    def on_fit_start(self, trainer, module):
        if self.slow is None:
            self.slow, self.averaged = copy.deepcopy(module.net), torch.optim.swa_utils.AveragedModel(module.net)

    def {hook}(self, trainer, module, *_):
        self.averaged.update_parameters(module.net)
        self.seen.append(trainer.global_step)
        with torch.no_grad():
            for each, slow in zip(module.net.parameters(), self.slow.parameters()):
                slow.lerp_(each, 0.2)

class Module(lightning.LightningModule):
    def __init__(self, kill_at):
        super().__init__()
        self.net, self.kill_at = Net(), kill_at
    def training_step(self, batch, index):
        if self.trainer.global_step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.net(**batch)["loss"]
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)

def end(folder, kill_at=-1):
    lightning.seed_everything(1, verbose=False)
    module, averages, exact = Module(kill_at), Averages(), ts.lightning.ExactResume(folder, every_n_batches=2)
    if {early}:
        averages.on_fit_start(None, module)
    trainer = lightning.Trainer(max_epochs=3, callbacks=[{order}], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
    trainer.fit(module, DataLoader(Pairs(), 4, shuffle=True), ckpt_path=exact.checkpoint)
    held = [*module.parameters(), *averages.slow.parameters(), *averages.averaged.parameters()]
    return trainer.global_step, averages.seen, sum(each.double().sum().item() for each in held).hex()

plain = end("plain")
for moment in (3, plain[0] - 1):
    if not (child := os.fork()):
        end(str(moment), moment)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert (again := end(str(moment))) == plain, (moment, again, plain)
"""


@pytest.mark.parametrize(
    ("hook", "order", "early"),
    [
        ("on_train_batch_end", "exact, averages", True),
        ("on_before_zero_grad", "averages, exact", True),
        ("on_train_batch_end", "averages, exact", False),
    ],
)
def test_lightnings_callbacks_go_on_with_the_modules_they_hold(tmp_path, hook, order, early):
    code = HOLDING_IN_LIGHTNING.format(here=str(Path(__file__).parent), hook=hook, order=order, early=early)
    done = frameworks.run("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
