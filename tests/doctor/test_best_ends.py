# SPDX-License-Identifier: Apache-2.0
"""What a library takes for the best value is told of where the figure's name says that its other end is."""

import pytest

from tests.support.told import loud

HEADS = """
import lightning as L
from ignite.handlers import Checkpoint, EarlyStopping as IgniteStopping, ModelCheckpoint as IgniteCheckpoint
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from transformers import Seq2SeqTrainingArguments, TrainingArguments
"""
OTHER_END = [
    'stop = EarlyStopping("val_acc")',
    'stop = EarlyStopping(monitor="val_loss", mode="max", patience=3)',
    'keep = ModelCheckpoint("out", monitor="val_acc", mode="min")',
    'keep = L.pytorch.callbacks.ModelCheckpoint(monitor="val/f1", save_top_k=2)',
    'FIGURE = "valid_auc"\nkeep = ModelCheckpoint(monitor=FIGURE)',
    'keep = ModelCheckpoint("out", "{epoch}", "val_iou")',
    'options = TrainingArguments("out", metric_for_best_model="accuracy", greater_is_better=False)',
    'options = Seq2SeqTrainingArguments("out", load_best_model_at_end=True, metric_for_best_model="wer")',
    'options = TrainingArguments("out", metric_for_best_model="eval_loss", greater_is_better=True)',
    'stop = IgniteStopping(4, score_function=lambda e: e.state.metrics["loss"], trainer=trainer)',
    'def score(engine):\n    return engine.state.metrics["nll"]\nkeep = Checkpoint({}, "out", score_function=score)',
    'keep = IgniteCheckpoint("out", score_function=lambda e: -e.state.metrics["accuracy"])',
]
OWN = """
class EarlyStopping:
    def __init__(self, figure, mode="max"):
        self.figure = figure
stop = EarlyStopping("val_acc")
"""
ITS_END = [
    'stop = EarlyStopping("val_loss")',
    'stop = EarlyStopping("val_acc", mode="max")',
    'keep = ModelCheckpoint("out", monitor="val_loss", save_top_k=2)',
    'keep = ModelCheckpoint(monitor="val_dice", mode=args.mode)',
    'keep = ModelCheckpoint(monitor="val_dice_loss")',
    'keep = ModelCheckpoint(monitor="neg_mse", mode="max")',
    'keep = ModelCheckpoint(monitor="step", mode="max", save_top_k=3)',
    "keep = ModelCheckpoint(monitor=args.monitor)",
    'keep = ModelCheckpoint(**{"monitor": "val_acc"})',
    'options = TrainingArguments("out", load_best_model_at_end=True, metric_for_best_model="accuracy")',
    'options = TrainingArguments("out", metric_for_best_model="eval_loss")',
    'options = TrainingArguments("out", metric_for_best_model="wer", greater_is_better=False)',
    'stop = IgniteStopping(4, score_function=lambda e: -e.state.metrics["loss"], trainer=trainer)',
    'keep = Checkpoint({}, "out", score_function=Checkpoint.get_default_score_fn("loss", -1.0))',
    'pad = F.pad(x, (1, 1), mode="reflect"), nn.Upsample(mode="nearest")',
    OWN,
]  # fmt: skip


@pytest.mark.parametrize("code", OTHER_END)
def test_the_other_end_is_told_of(code):
    assert loud("SAVE019", HEADS + code)


@pytest.mark.parametrize("code", ITS_END)
def test_its_end_is_right(code):
    assert not loud("SAVE019", HEADS + code)


LIT = """
import lightning as L
class Task(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 3)
    def training_step(self, batch, batch_idx):
        return F.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters())
        sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt{mode})
        return {given}
"""
GIVEN = [
    '{"optimizer": opt, "lr_scheduler": {"scheduler": sched, "monitor": "val_acc"}}',
    '{"optimizer": opt, "lr_scheduler": sched, "monitor": "val_f1"}',
    '[opt], [{"scheduler": sched, "interval": "epoch", "monitor": "val_auc"}]',
    '{"lr_scheduler": {"monitor": "val_acc", "scheduler": sched}, "optimizer": opt}',
]


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize(("mode", "is_told"), [("", True), (', "min"', True), (", mode='max'", False)])
def test_a_plateau_that_lightning_steps_is_against_what_it_monitors(given, mode, is_told):
    assert loud("SCHED002", LIT.replace("{mode}", mode).replace("{given}", given)) is is_told
