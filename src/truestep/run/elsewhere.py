# SPDX-License-Identifier: Apache-2.0
"""Options and calls as other libraries have them, with what to write here."""

from collections.abc import Iterable

from truestep.core.errors import did_you_mean

_CLIP = "clip=ts.ClipNorm(1.0)"
_PARTS = "micro_batch=..., the largest number of examples computed at once: the batch is split, the update stays the same"
_EPOCHS = "the number in the loop: for epoch in run.epochs(20)"
_IN_THE_FACTORY = "it in the optimizer's factory: lambda p: torch.optim.AdamW(p, lr=1e-3)"
_SAVING = "saving=ts.Saving(every_steps=1000, keep_last=2)"
_MIXED = 'precision="bf16-mixed"'

RUN = {
    **dict.fromkeys(("epochs", "num_epochs", "max_epochs"), _EPOCHS),
    **dict.fromkeys(("amp", "mixed_precision", "dtype", "fp16", "bf16"), _MIXED),
    **dict.fromkeys(("save_every", "save_steps", "checkpoint_every", "checkpointing", "keep_last"), _SAVING),
    **dict.fromkeys(
        ("dir", "path", "root", "log_dir", "output_dir", "name"), 'it first: ts.Run("runs/digits")'
    ),
    **dict.fromkeys(("log_interval", "logging_steps", "log_every_n_steps"), "log_every=10"),
    **dict.fromkeys(("accelerator", "gpu", "gpus", "cuda"), 'device="cuda"'),
    **dict.fromkeys(("hparams", "hyperparameters"), "config={...}"),
    "resume_from_checkpoint": 'resume="must"; the checkpoint is the newest sound one of the directory',
    "verbose": "progress=False for no bar",
    "batch_size": "run.data(data_set, batch_size=...)",
}
LEARNER = {
    **dict.fromkeys(
        ("clip_norm", "max_norm", "max_grad_norm", "clip_grad_norm", "grad_clip", "gradient_clip_val"), _CLIP
    ),
    "clip_value": "clip=ts.ClipValue(0.5)",
    **dict.fromkeys(
        ("accumulate", "accumulation_steps", "accumulate_grad_batches", "gradient_accumulation_steps"), _PARTS
    ),
    **dict.fromkeys(("microbatch", "microbatch_size", "micro_batch_size"), "micro_batch=..."),
    **dict.fromkeys(("amp", "mixed_precision", "dtype", "fp16", "bf16", "autocast"), _MIXED),
    **dict.fromkeys(
        ("scheduler", "lr_scheduler", "lr_schedule"), "schedule=lambda o: ts.warmup_cosine(o, ...)"
    ),
    **dict.fromkeys(("ema_decay", "use_ema", "average"), "ema=ts.EMA(decay=0.999)"),
    **dict.fromkeys(("lr", "learning_rate", "weight_decay", "betas", "momentum"), _IN_THE_FACTORY),
    **dict.fromkeys(("optim", "opt", "optimizers"), "optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3)"),
    **dict.fromkeys(("module", "model", "net"), "the module first: run.learner(net, optimizer)"),
    **dict.fromkeys(("scaler", "grad_scaler"), "loss_scale=..., with a float16 precision"),
    "nonfinite": "it for the whole run: ts.Run(directory, nonfinite=...)",
    "device": 'it for the whole run: ts.Run(directory, device="cuda")',
    "decomposable": "it where the loss is given: net.update(loss, batch, decomposable=False)",
}

EPOCHS = "run.epochs takes how many epochs the whole run has: for epoch in run.epochs(20). Later that can be more, not less."
STEPS = "run.steps takes how many steps the whole run has: for step in run.steps(10_000)."
SAVE = (
    "run.save() takes nothing: it saves the whole run in its own directory, at the next moment between two batches. For a file of "
    "weights alone write ts.export_weights(run.directory, 'weights.safetensors') when the run is closed, or "
    "torch.save(net.module.state_dict(), 'weights.pt')."
)
NEW_LEARNER = (
    "run.learner takes a module and a function that makes its optimizer from the parameters, since that is made after the module "
    "is on its device: run.learner(net, lambda p: torch.optim.AdamW(p, lr=1e-3)). All else is given by name."
)
_LOOP = (
    "the loop is yours: net = run.learner(module, optimizer), and then "
    "for batch in run.batches(source): net.update(loss, batch)"
)
ATTRIBUTES = {
    **dict.fromkeys(("fit", "train", "training_step", "update", "train_step", "backward"), _LOOP),
    **dict.fromkeys(
        ("evaluate", "validate", "test", "predict"), "net.evaluate(values, data) measures a learner"
    ),
    **dict.fromkeys(
        ("load", "resume_from", "restore"), "a run goes on by itself: ts.Run(directory) of the same directory"
    ),
    **dict.fromkeys(
        ("log_metrics", "log_dict", "log_metric"), "write run.log(accuracy=0.9), or run.log(**values)"
    ),
    **dict.fromkeys(
        ("loader", "dataloader", "dataset"), "write run.data(data_set, batch_size=64, shuffle=True)"
    ),
}


def unknown_attribute(name: str, known: Iterable[str]) -> str:
    """Return the message for an attribute that a run does not have."""
    said = f"A run has no attribute {name!r}"
    if name.startswith("_"):  # a protocol that somebody asks for
        return said
    if name in ATTRIBUTES:
        return f"{said}: {ATTRIBUTES[name]}."
    return f"{said}. {did_you_mean(name, (each for each in known if not each.startswith('_')))}".rstrip()
