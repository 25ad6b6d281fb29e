# SPDX-License-Identifier: Apache-2.0
"""Options and calls as other libraries have them, with what to write here."""

from truestep.core.other_words import ACCUMULATE, ACCUMULATED

_CLIP = "clip=ts.ClipNorm(1.0)"
_PARTS = "micro_batch=..., the largest number of examples computed at once: the batch is split, the update stays the same"
_EPOCHS = "the number in the loop: for epoch in run.epochs(20)"
_IN_THE_FACTORY = "it in the optimizer's factory: lambda p: torch.optim.AdamW(p, lr=1e-3)"
_SAVING = "saving=ts.Saving(every_steps=1000, keep_last=2)"
_MIXED = 'precision="bf16-mixed"'

_TRACKERS = "trackers=[ts.TensorBoardTracker()]; metrics.jsonl and the report are always written"

RUN = {
    **dict.fromkeys(
        ("callbacks", "callback", "plugins"), "it into the loop's body: the loop is plain python"
    ),
    **dict.fromkeys(
        ("max_steps", "num_steps", "total_steps", "steps"),
        "the number in the loop: for step in run.steps(10_000)",
    ),
    **dict.fromkeys(
        ("gradient_clip_val", "gradient_clip_algorithm", "max_grad_norm", "clip"),
        f"it where the learner is made: run.learner(net, optimizer, {_CLIP})",
    ),
    **dict.fromkeys(ACCUMULATE, ACCUMULATED),
    "micro_batch": f"it where the learner is made: run.learner(net, optimizer, micro_batch=...) is {_PARTS.partition(', ')[2]}",
    **dict.fromkeys(("logger", "loggers", "log_with", "report_to", "wandb", "project_dir"), _TRACKERS),
    **dict.fromkeys(
        ("devices", "num_nodes", "nprocs", "num_processes", "world_size", "n_gpu"),
        'device="cuda" for one; for several start the script with truestep launch --processes 4 train.py',
    ),
    **dict.fromkeys(
        ("enable_progress_bar", "disable_tqdm", "enable_model_summary"), "progress=False for no bar"
    ),
    **dict.fromkeys(("enable_checkpointing", "save_top_k", "save_total_limit"), _SAVING),
    **dict.fromkeys(
        ("benchmark", "detect_anomaly", "profiler", "inference_mode"),
        "torch's own switch before the run is made",
    ),
    **dict.fromkeys(
        ("fast_dev_run", "limit_train_batches", "limit_val_batches", "overfit_batches"),
        "the limit in the loop: run.batches(source, limit=10)",
    ),
    **dict.fromkeys(
        ("check_val_every_n_epoch", "val_check_interval", "eval_steps"),
        "it in the loop: if epoch % 5 == 0: run.log(accuracy=net.evaluate(correct, test))",
    ),
    **dict.fromkeys(
        ("sync_batchnorm", "use_distributed_sampler"),
        "nothing: batch norm and the order of samples are exact over processes",
    ),
    **dict.fromkeys(
        ("model", "module", "net", "optimizer", "learner"),
        "net = run.learner(module, optimizer) when the run is made",
    ),
    **dict.fromkeys(
        ("learning_rate", "lr"),
        "it in the optimizer's factory: run.learner(net, lambda p: torch.optim.AdamW(p, lr=1e-3))",
    ),
    **dict.fromkeys(("epochs", "num_epochs", "max_epochs"), _EPOCHS),
    **dict.fromkeys(("amp", "mixed_precision", "dtype", "fp16", "bf16"), _MIXED),
    **dict.fromkeys(("save_every", "save_steps", "checkpoint_every", "checkpointing", "keep_last"), _SAVING),
    **dict.fromkeys(
        (
            "dir",
            "path",
            "root",
            "log_dir",
            "output_dir",
            "name",
            "default_root_dir",
            "logging_dir",
            "run_dir",
        ),
        'it first: ts.Run("runs/digits")',
    ),
    **dict.fromkeys(("log_interval", "logging_steps", "log_every_n_steps"), "log_every=10"),
    **dict.fromkeys(("accelerator", "gpu", "gpus", "cuda"), 'device="cuda"'),
    **dict.fromkeys(("hparams", "hyperparameters"), "config={...}"),
    **dict.fromkeys(
        ("ckpt_path", "checkpoint_path", "checkpoint"),
        "nothing: start the program again, and it goes on by itself; of another run ts.load_weights(module, path) takes weights",
    ),
    "resume_from_checkpoint": 'resume="must"; the checkpoint is the newest sound one of the directory',
    "verbose": "progress=False for no bar",
    "batch_size": "run.data(data_set, batch_size=...)",
}
LEARNER = {
    **dict.fromkeys(
        ("clip_norm", "max_norm", "max_grad_norm", "clip_grad_norm", "grad_clip", "gradient_clip_val"), _CLIP
    ),
    "clip_value": "clip=ts.ClipValue(0.5)",
    **dict.fromkeys(ACCUMULATE, ACCUMULATED),
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

BATCHES = {
    **dict.fromkeys(("epochs", "num_epochs"), "the loop around it: for epoch in run.epochs(20)"),
    **dict.fromkeys(
        ("batch_size", "shuffle", "num_workers", "drop_last", "collate"),
        "it where the source is made: run.data(data_set, batch_size=64, shuffle=True)",
    ),
    **dict.fromkeys(("desc", "total", "progress"), "nothing: the run shows a bar by itself"),
    **dict.fromkeys(("device", "to"), "nothing: batches come on the run's device"),
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


def run_data_message(given: tuple[object, ...]) -> str:
    """Say what `run.data` takes, for a call that python refused."""
    if len(given) > 1 and not any(isinstance(each, int) for each in given):  # no sizes
        names = ", ".join("xyzuvw"[: len(given)])
        return (
            f"run.data was given {len(given)} things by place, and takes one, whose parts are read together. Put them into a "
            f"tuple: run.data(({names}), batch_size=64); all else goes by name."
        )
    return (
        "run.data takes the data by place, and all else by name: run.data(data, batch_size=64, shuffle=True)."
    )


TRACK = (
    "run.track takes objects by name, under which a checkpoint keeps their states: run.track(target=network). What run.learner and "
    "run.data made is kept already."
)
_LOOP = (
    "the loop is yours: net = run.learner(module, optimizer), and then "
    "for batch in run.batches(source): net.update(loss, batch)"
)
_BACKWARD = "net.update(loss, batch) does backward, clipping, step and schedule; net.accumulating() takes computed losses"
_LOG = "write run.log(accuracy=0.9), or run.log(**values)"
_MEDIA = "write run.log(samples=ts.Image(pixels)), ts.Audio(wave, rate) or ts.Text(string)"
_END = "run.finish() ends the run, when this body is over"
ATTRIBUTES = {
    **dict.fromkeys(("fit", "train", "training_step", "update", "train_step", "start"), _LOOP),
    **dict.fromkeys(
        ("backward", "manual_backward", "optimizer_step", "zero_grad", "clip_gradients"), _BACKWARD
    ),
    **dict.fromkeys(
        ("optimizer", "optimizers", "scheduler", "lr_schedulers"),
        "a learner has them: net.optimizers, net.learning_rate",
    ),
    **dict.fromkeys(
        ("evaluate", "validate", "test", "predict"), "net.evaluate(values, data) measures a learner"
    ),
    **dict.fromkeys(
        ("load", "resume", "resume_from", "restore", "load_checkpoint", "load_state"),
        "a run goes on by itself: ts.Run(directory) of the same directory. Weights of its best checkpoint are "
        "ts.load_weights(module, run.directory, checkpoint='highest accuracy')",
    ),
    **dict.fromkeys(
        ("save_checkpoint", "save_state", "save_model"),
        "run.save() saves all of it at the next moment between two batches, and a run saves itself as ts.Saving says",
    ),
    **dict.fromkeys(("log_metrics", "log_dict", "log_metric", "add_scalar", "logger", "log_scalar"), _LOG),
    **dict.fromkeys(("log_image", "log_images", "add_image", "add_figure", "log_audio", "log_text"), _MEDIA),
    **dict.fromkeys(
        ("loader", "dataloader", "dataset", "train_dataloader"),
        "write run.data(data_set, batch_size=64, shuffle=True)",
    ),
    **dict.fromkeys(
        ("global_step", "iteration", "num_steps", "batch_idx"), "run.step counts the batches given out so far"
    ),
    **dict.fromkeys(("current_epoch", "epoch_idx"), "run.epoch is the epoch under way, from 0"),
    **dict.fromkeys(("stop", "end", "should_stop", "stop_training", "should_training_stop"), _END),
    **dict.fromkeys(
        ("callbacks", "callback", "add_callback", "on"),
        "the loop is plain python: what a callback would do stands in its body",
    ),
    **dict.fromkeys(
        ("path", "log_dir", "dir", "default_root_dir", "output_dir"), "the run's folder is run.directory"
    ),
    **dict.fromkeys(("global_rank", "process_index"), "run.rank is this process's number"),
    **dict.fromkeys(("is_global_zero", "is_main_process", "is_local_main_process"), "write run.is_main"),
    **dict.fromkeys(("num_processes", "num_devices"), "write run.world_size"),
    **dict.fromkeys(
        ("prepare", "setup", "wrap"),
        "net = run.learner(module, optimizer), and source = run.data(data_set, batch_size=64)",
    ),
    **dict.fromkeys(("print",), "write if run.is_main: print(...)"),
    **dict.fromkeys(
        ("model", "net", "module"), "a run may have several: net = run.learner(module, optimizer)"
    ),
    **dict.fromkeys(
        ("metrics", "history", "logged_metrics", "callback_metrics"),
        "what was logged stands in run.directory / 'metrics.jsonl'",
    ),
    **dict.fromkeys(
        ("hparams", "hyperparameters"), "ts.Run(directory, config={...}) keeps them, as run.config"
    ),
    **dict.fromkeys(
        ("barrier", "wait_for_everyone", "no_sync", "all_reduce", "sync_gradients"),
        "the processes of a run meet at each update by themselves",
    ),
    **dict.fromkeys(
        ("gather", "all_gather", "gather_for_metrics", "reduce"),
        "write ts.gather(tensor); net.evaluate averages over all",
    ),
    **dict.fromkeys(("accumulate",), f"write {ACCUMULATED}"),
    **dict.fromkeys(
        ("autocast", "scaler", "scale_loss"),
        "ts.Run(directory, precision=...) does it, around the whole loss",
    ),
    **dict.fromkeys(
        ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"),
        "write run.learner(..., clip=ts.ClipNorm(1.0))",
    ),
    **dict.fromkeys(("unwrap_model", "unwrap"), "nothing is wrapped: the module is net.module"),
    **dict.fromkeys(
        ("log_hyperparams", "save_hyperparameters"), "ts.Run(directory, config={...}) keeps them"
    ),
    **dict.fromkeys(("watch",), "the run looks at its layers by itself: ts.Run(directory, watch_layers=...)"),
    **dict.fromkeys(
        ("summary", "report"),
        "write print(ts.summary(net, batch)) for a model, ts.write_report(run.directory) for the run",
    ),
    **dict.fromkeys(
        ("seed", "name"),
        "it is in what the run was made with; run.directory.name is what its folder is called",
    ),
    **dict.fromkeys(("batch_size",), "a source has it: run.data(data_set, batch_size=64)"),
    **dict.fromkeys(("lr", "learning_rate"), "a learner has it: net.learning_rate"),
}
_FIXED = "it is said where the run is made, ts.Run(directory, {}=...)"
SET = {
    **dict.fromkeys(("should_stop", "stop", "finished", "stop_training"), _END),
    **{
        name: _FIXED.format(name)
        for name in (
            "precision",
            "saving",
            "config",
            "resume",
            "directory",
            "strategy",
            "device",
            "trackers",
            "seed",
            "log_every",
        )
    },
    **dict.fromkeys(("step", "epoch"), "the run counts it; run.steps, run.epochs and run.batches move it"),
    **dict.fromkeys(("callbacks", "logger"), ATTRIBUTES["callbacks"]),
    **dict.fromkeys(
        ("max_epochs", "max_steps"),
        "the loop says it: for epoch in run.epochs(20), for step in run.steps(10_000)",
    ),
}

# What `run.log` would write down as a value, and is an option of the loggers of other libraries.
LOGGED = {
    **dict.fromkeys(
        ("on_step", "on_epoch", "reduce_fx"),
        "a value is written as it is, where it is logged; ts.weighted(values, accuracy=...) is averaged over the updates, and "
        "net.evaluate over data",
    ),
    **dict.fromkeys(("prog_bar",), "the bar shows what was logged last by itself"),
    **dict.fromkeys(
        ("sync_dist", "sync_dist_group", "rank_zero_only"),
        "all processes log the same number: ts.gather collects what differs, net.evaluate averages over all",
    ),
    **dict.fromkeys(
        ("logger", "add_dataloader_idx", "commit"), "all goes to metrics.jsonl and to the run's trackers"
    ),
    **dict.fromkeys(
        ("step", "global_step"), "each line has run.step already; a count of your own needs another name"
    ),
}
