# SPDX-License-Identifier: Apache-2.0
"""Plain attributes that a training changes go on as they were, in several habits; what can't be kept is told of once."""

import json

import pytest

import frameworks

pytestmark = pytest.mark.xdist_group("frameworks")  # one process that the others are forked from

PROGRAM = """
import collections, contextlib, dataclasses, io, json, logging, sys, time, warnings
import numpy as np, torch, truestep as ts
from torch import nn
from torch.utils.data import DataLoader
warnings.simplefilter("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
ROWS = torch.linspace(0, 1, 32 * 4).reshape(32, 4)

class Stop(BaseException):
    pass

class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0
    def add(self, value):
        self.sum += value; self.count += 1
        return self.sum / self.count

@dataclasses.dataclass
class Best:
    value: float = 1e9

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.Linear(4, 1), 0
        self.register_buffer("hidden", torch.zeros(4), persistent=False)
    def forward(self, x):
        self.calls += self.training
        if self.training:
            self.hidden = 0.9 * self.hidden + 0.1 * x.detach().mean(0)
        return self.inner(x + self.hidden) * (1 + 0.01 * self.calls)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.net, self.rnn = Layer(), nn.LSTM(4, 4, batch_first=True)
        self.counter, self.best, self.mean, self.warm, self.seen = 0, float("inf"), torch.zeros(()), True, []
        self.window, self.ids, self.by_class = collections.deque(maxlen=3), set(), collections.defaultdict(float)
        self.array, self.named, self.meter, self.record = np.zeros(2), {"a": {"b": 0}}, Meter(), Best()
        self.alias, self.rows, self.big = self.seen, [object()] * 60_000, np.zeros((1 << 23) + 1)  # data sets
        self.weird = {}
    def loss(self, x):
        value = self.net(x + self.rnn(x[:, None])[0][:, 0]).square().mean()
        if CHANGES:
            self.counter += 1
            self.best = min(self.best, value.item())
            self.mean = 0.9 * self.mean + 0.1 * value.detach()
            self.warm = self.warm and self.counter < 3
            self.seen.append(round(value.item(), 3))
            self.window.append(value.item()); self.ids.add(self.counter % 5); self.by_class[self.counter % 2] += 1.0
            self.array = self.array + 1; self.named["a"]["b"] += 2; self.record.value = min(self.record.value, value.item())
            self.cached, self.last, self.begun_at = self.net(x), value.item(), time.perf_counter()
            extra = self.counter + self.best + self.mean + self.warm + len(self.alias) + sum(self.window) + len(self.ids)
            extra = extra + self.by_class[0] + self.array.sum() + self.named["a"]["b"] + self.meter.add(value.item())
            value = value * (1 + 0.001 * (extra + self.record.value))
        if WEIRD:
            self.weird[len(self.weird)] = object()
        return value

class Stopping:
    def __init__(self, at):
        self.at, self.count = at, 0
    def batch(self):
        if self.count == self.at:
            raise Stop
        self.count += 1

def by_lightning(folder, stop_at):
    import lightning, torchmetrics
    class Ema(lightning.Callback):
        def __init__(self):
            self.shadow = None
        def on_train_batch_end(self, trainer, module, *_):
            weights = [each.detach().clone() for each in module.parameters()]
            self.shadow = weights if self.shadow is None else [0.9 * a + 0.1 * b for a, b in zip(self.shadow, weights)]
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body, self.stopping, self.metric = Net(), (), torchmetrics.MeanMetric()
        def on_train_epoch_start(self):
            self.rate_now, self.t0, self.count = 0.5 ** self.current_epoch, time.time(), 0
        def training_step(self, batch, _):
            stopping.batch()
            self.count += 1
            loss = self.body.loss(batch) * self.rate_now * (1 + 0.01 * self.count)
            self.metric(loss.detach()); self.log("metric", self.metric, on_epoch=True, on_step=False)
            return loss
        def on_train_epoch_end(self):
            assert time.time() - self.t0 < 60
        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)
    lightning.seed_everything(1, verbose=False)
    stopping, ema, module = Stopping(stop_at), Ema(), Module()
    exact = ts.lightning.ExactResume(folder, every_n_batches=3)
    trainer = lightning.Trainer(callbacks=[ema, exact], max_epochs=3, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
    trainer.fit(module, DataLoader(ROWS, 4, shuffle=True), ckpt_path=exact.checkpoint)
    return [each.tolist() for each in (*module.parameters(), *ema.shadow)], float(trainer.callback_metrics["metric"])

def by_trainer(folder, stop_at):
    import transformers
    stopping = Stopping(stop_at)
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = Net()
        def forward(self, x):
            stopping.batch()
            return {"loss": self.body.loss(x)}
    exact = ts.transformers.ExactResume(f"{folder}/exact")
    arguments = transformers.TrainingArguments(f"{folder}/theirs", save_strategy="steps", save_steps=3, report_to=[],
        use_cpu=True, disable_tqdm=True, logging_steps=100, num_train_epochs=3, per_device_train_batch_size=4)
    model = Model()
    trainer = transformers.Trainer(model, arguments, train_dataset=[{"x": row} for row in ROWS], callbacks=[exact])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=exact.checkpoint)
    return [each.tolist() for each in model.parameters()]

def by_accelerate(folder, stop_at):
    import accelerate
    accelerate.utils.set_seed(1)
    accelerator, stopping, net = accelerate.Accelerator(cpu=True), Stopping(stop_at), Net()
    net, optimizer, loader = accelerator.prepare(
        net, torch.optim.AdamW(net.parameters(), lr=0.01), DataLoader(ROWS, 4, shuffle=True))
    exact = ts.accelerate.ExactResume(accelerator, loader, folder, every_n_batches=3)
    try:
        for _ in range(exact.epoch, 3):
            for batch in exact:
                stopping.batch()
                accelerator.backward(net.loss(batch)); optimizer.step(); optimizer.zero_grad()
    finally:
        exact.close()
    return [each.tolist() for each in net.parameters()]

train = {"lightning": by_lightning, "transformers": by_trainer, "accelerate": by_accelerate}[LIBRARY]
def end_of(*given):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            end = train(*given)
        except Stop:
            end = None
    return end, [each for each in said.getvalue().splitlines() if "truestep: " in each and "going on from" not in each]

told = {}
for CHANGES, WEIRD in ((True, False), (False, False), (False, True)):
    for stop_at in (4, 13):
        name = f"{CHANGES}, {WEIRD}, {stop_at}"
        whole, first = end_of(name + "-whole", -1)
        _, second = end_of(name, stop_at)
        again, third = end_of(name, -1)
        told[name] = {"same": again == whole, "said": [first, second, third]}
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    "library",
    [
        pytest.param("lightning", marks=pytest.mark.slow),
        pytest.param("transformers", marks=pytest.mark.slow),
        "accelerate",
    ],
)
def test_what_a_training_changes_is_kept_or_told_of_once(library, tmp_path):
    done = frameworks.run("-c", f"LIBRARY = {library!r}\n{PROGRAM}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    instead = "def on_save_checkpoint(self" if library == "lightning" else "get_extra_state(self)"
    for name, told in json.loads(done.stdout.splitlines()[-1]).items():
        assert told["same"], name
        weird = ", True, " in name
        assert [len(each) for each in told["said"]] == [weird] * 3, (name, told)
        assert not weird or (".weird, a dict," in told["said"][0][0] and instead in told["said"][0][0]), told
