# SPDX-License-Identifier: Apache-2.0
"""Mistakes that users of an hour wrote with frameworks and that nothing was said of, beside right twins."""

import pytest
from doctor.test_watchers import run_example

from tests.support.told import loud

ACCELERATE = """
from accelerate import Accelerator
from transformers import get_linear_schedule_with_warmup
EPOCHS, ACC = 4, 8
def main(args):
    accelerator = Accelerator(gradient_accumulation_steps=STEPS)
    net = nn.Linear(4, 3)
    train_loader = DataLoader(args.data, batch_size=8, shuffle=True)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    sched = SCHEDULE
    net, opt, train_loader, sched = accelerator.prepare(net, opt, train_loader, sched)
    for epoch in range(args.epochs):
        for x, y in train_loader:
            with accelerator.accumulate(net):
                loss = F.cross_entropy(net(x), y)
                BACKWARD
                opt.step()
                sched.step()
                opt.zero_grad()
"""
LINEAR = "get_linear_schedule_with_warmup(opt, num_warmup_steps=5, num_training_steps=%s)"
RIGHT = LINEAR % "args.epochs * (len(train_loader) // 2)"


def accelerated(schedule: str = RIGHT, steps: str = "2", backward: str = "accelerator.backward(loss)") -> str:
    text = ACCELERATE.replace("SCHEDULE", schedule).replace("STEPS", steps)
    return text.replace("BACKWARD", backward.replace("\n", "\n                "))


OTHER_LENGTH = [
    accelerated(LINEAR % "args.epochs"),
    accelerated(LINEAR % "args.epochs", "1"),
    accelerated("torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.epochs)"),
    accelerated(LINEAR % "args.epochs * len(train_loader)"),
    accelerated(LINEAR % "args.epochs * len(train_loader)", "args.accum"),
    accelerated("torch.optim.lr_scheduler.CosineAnnealingLR(opt, len(train_loader) * args.epochs)"),
    accelerated(
        "torch.optim.lr_scheduler.OneCycleLR(opt, 1e-3, epochs=EPOCHS, steps_per_epoch=len(train_loader))"
    ),
]
ITS_LENGTH = [
    accelerated(),
    accelerated(LINEAR % "args.epochs * len(train_loader) // args.accum", "args.accum"),
    accelerated(
        LINEAR % "args.epochs * (len(train_loader) / accelerator.gradient_accumulation_steps).__ceil__()"
    ),
    accelerated(LINEAR % "args.epochs * len(train_loader)", "1"),
    accelerated(LINEAR % "args.max_steps"),
    accelerated(LINEAR % "args.epochs * args.updates_per_epoch"),
    accelerated(LINEAR % "args.epochs * len(train_loader)").replace(
        "loader, sched = accelerator.prepare(net, opt, train_loader, sched)",
        "loader = accelerator.prepare(net, opt, train_loader)",
    ),
    accelerated(LINEAR % "args.epochs").replace("            sched.step()\n", "        sched.step()\n", 1)
    .replace("                sched.step()", "        sched.step()"),
]  # fmt: skip
LIGHTNING = """
import lightning as L
from lightning.pytorch.callbacks import Callback
class Task(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
        self.teacher = nn.Sequential(nn.Linear(64, 10), nn.Dropout(0.1))
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, batch_idx):
        BODY
        return F.cross_entropy(self(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)
    HOOK
class Probe(Callback):
    CALLBACK
L.Trainer(max_epochs=3, callbacks=[Probe()]).fit(Task(), DataLoader(data, 32, shuffle=True))
"""


def lit(hook: str = "", callback: str = "pass", body: str = "pass") -> str:
    text = LIGHTNING.replace("HOOK", hook.replace("\n", "\n    "))
    return text.replace("CALLBACK", callback.replace("\n", "\n    ")).replace("BODY", body)


BATCH_END = "def on_train_batch_end(self, trainer, module, *_):\n    "
LEFT_IN_EVAL = [
    lit(callback=BATCH_END + "module.eval()\n    print(module(torch.zeros(4, 64)))"),
    lit(callback=BATCH_END + "if trainer.global_step % 10 == 0:\n        module.eval()"),
    lit(callback="def on_train_epoch_start(self, trainer, pl_module):\n    pl_module.eval()"),
    lit(hook="def on_train_epoch_start(self):\n    self.eval()"),
    lit(hook="def on_train_start(self):\n    self.eval()"),
    lit(hook="def on_train_batch_start(self, batch, batch_idx):\n    self.train(False)"),
    lit(
        hook="def on_train_batch_end(self, outputs, batch, batch_idx):\n    self.eval()\n    print(self(batch[0]))"
    ),
    lit(body="self.eval()"),
]
BACK_IN_TRAIN = [
    lit(),
    lit(callback=BATCH_END + "module.eval()\n    print(module(torch.zeros(4, 64)))\n    module.train()"),
    lit(callback=BATCH_END + "was = module.training\n    module.eval()\n    module.train(was)"),
    lit(callback="def on_validation_epoch_start(self, trainer, module):\n    module.eval()"),
    lit(callback="def on_fit_end(self, trainer, module):\n    module.eval()"),
    lit(callback=BATCH_END + "self.ema.eval()\n    print(self.ema(torch.zeros(4, 64)))"),
    lit(hook="def on_train_epoch_start(self):\n    self.teacher.eval()"),
    lit(hook="def on_train_epoch_start(self):\n    self.net[1].eval()"),
    lit("def on_train_batch_start(self, batch, batch_idx):\n    self.train()", BATCH_END + "module.eval()"),
]


GAN = """
import lightning as L
class Gan(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.discriminator = nn.Linear(4, 8), nn.Linear(8, 1)
    def forward(self, z):
        return self.generator(z)
    def training_step(self, batch, batch_idx):
        (real,) = batch
        g_opt, d_opt = self.optimizers()
        z = torch.randn(len(real), 4)
        TOP
        fake = FAKE
        d_loss = F.softplus(-self.discriminator(real)).mean() + F.softplus(self.discriminator(fake)).mean()
        d_opt.zero_grad()
        self.manual_backward(d_loss)
        d_opt.step()
        g_loss = F.softplus(-self.discriminator(self(z))).mean()
        BETWEEN
        self.manual_backward(g_loss)
        g_opt.step()
        END
    def configure_optimizers(self):
        g = torch.optim.Adam(self.generator.parameters(), lr=1e-3)
        return [g, torch.optim.Adam(self.discriminator.parameters(), lr=1e-3)], []
"""
CLEAR = "g_opt.zero_grad()"


def gan(top: str = "pass", fake: str = "self(z)", between: str = "pass", end: str = "pass") -> str:
    text = GAN.replace("TOP", top).replace("FAKE", fake)
    return text.replace("BETWEEN", between).replace("END", end)


PUSHED_BACK = [gan(CLEAR), gan(end=CLEAR), gan(CLEAR, "self.generator(z)"), gan(CLEAR, "self.forward(z)")]
LET_ALONE = [
    gan(between=CLEAR),
    gan(CLEAR, "self(z).detach()"),
    gan(CLEAR, "self(z)").replace("discriminator(fake)", "discriminator(fake.detach())"),
    gan("self.toggle_optimizer(d_opt)", between="self.untoggle_optimizer(d_opt); g_opt.zero_grad()"),
]
ROWS = [
    ("SCHED012", OTHER_LENGTH, ITS_LENGTH),
    ("EVAL003", LEFT_IN_EVAL, BACK_IN_TRAIN),
    ("GRAD020", PUSHED_BACK, LET_ALONE),
]


@pytest.mark.parametrize(("code", "wrong", "right"), ROWS, ids=[each[0] for each in ROWS])
def test_each_wording_is_told_and_no_right_twin(code, wrong, right):
    assert [each for each in wrong if not loud(code, each)] == []
    assert [each for each in right if loud(code, each)] == []


AT_ZERO = """
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: {factor})
for step in range(40):
    loss = net(torch.randn(8, 4)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
"""


@pytest.mark.parametrize(
    ("factor", "is_told"),
    [
        ("max(0.0, 1 - step / 8)", True),
        ("max(0, min(step / 4, 1 - (step - 4) / 4))", True),
        ("max(0.0, 1 - step / 40)", False),
        ("max(0.0, 1 - step / 34)", False),
        ("0.0 if step < 15 else 1.0", False),
        ("step % 2", False),
    ],
)
def test_a_rate_of_nothing_is_told_while_the_schedule_goes_on(factor, is_told):
    found = run_example(AT_ZERO.format(factor=factor)).findings
    assert [each.code for each in found if "fell from" in each.message] == ["SCHED010"] * is_told


@pytest.mark.parametrize(("before", "is_told"), [("net.train()", True), ("net.eval()", False)])
def test_a_model_left_in_eval_mode_behind_its_first_step_is_told(before, is_told):
    step = "opt.zero_grad(); net(torch.randn(8, 4)).square().mean().backward(); opt.step(); net.eval()"
    made = "net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1))"
    script = f"{made}\nopt = torch.optim.SGD(net.parameters(), lr=0.01)\n{before}\nfor _ in range(4):\n    {step}\n"
    assert [each.code for each in run_example(script).findings if each.code == "EVAL003"] == [
        "EVAL003"
    ] * is_told


BY_HAND = """
import lightning.pytorch as pl
class Base(pl.LightningModule):
    automatic_optimization = False
class Task(pl.LightningModule):
    def __init__(self, manual=True):
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Linear(4, 3)
    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()
        AFTER
    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=1e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 50)
        return [opt], [sched]
    EPOCH
"""
LEFT = {
    "returned": [],
    "in a dict": [
        ("return [opt], [sched]", 'return {"optimizer": opt, "lr_scheduler": {"scheduler": sched}}')
    ],
    "made where it is returned": [
        ("        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 50)\n", ""),
        ("[sched]", "[torch.optim.lr_scheduler.StepLR(opt, 5)]"),
    ],
    "by the class above": [
        ("Task(pl.LightningModule)", "Task(Base)"),
        ("        self.automatic_optimization = False\n", ""),
    ],
    "kept as an attribute": [("sched = torch", "self.sched = torch"), ("[sched]", "[self.sched]")],
}
MOVED = {
    "by lr_schedulers": [("AFTER", "self.lr_schedulers().step()")],
    "at an epoch's end": [
        ("EPOCH", "def on_train_epoch_end(self):\n        sched = self.lr_schedulers()\n        sched.step()")
    ],
    "kept and stepped": [
        ("sched = torch", "self.sched = torch"),
        ("[sched]", "[self.sched]"),
        ("AFTER", "self.sched.step()"),
    ],
    "through the trainer": [
        ("AFTER", "for each in self.trainer.lr_scheduler_configs:\n            each.scheduler.step()")
    ],
    "all that it has": [("AFTER", "for each in self.moving:\n            each.step()")],
    "Lightning steps": [("        self.automatic_optimization = False\n", "")],
    "as it is told": [
        (
            "automatic_optimization = False\n        self.net",
            "automatic_optimization = not manual\n        self.net",
        )
    ],
}


def by_hand(changes: list[tuple[str, str]]) -> str:
    text = BY_HAND
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text.replace("AFTER", "pass").replace("EPOCH", "")


@pytest.mark.parametrize("name", LEFT)
def test_a_schedule_that_manual_optimization_leaves_alone_is_told_of(name):
    assert loud("SCHED002", by_hand(LEFT[name]))


@pytest.mark.parametrize("name", MOVED)
def test_a_schedule_that_something_moves_is_right(name):
    assert not loud("SCHED002", by_hand(MOVED[name]))
