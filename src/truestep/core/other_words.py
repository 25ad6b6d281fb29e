# SPDX-License-Identifier: Apache-2.0
"""What other libraries call things: words for options, and names that people look for in this package."""

import sys

# An option, and the words that other libraries have for it.
_WORDS = {
    "adamw_lr": "adam_lr",
    "at_epoch_end": "every_n_epochs save_on_train_epoch_end save_last save_strategy",
    "backoff": "backoff_factor",
    "batch": "data input_data input inputs x example example_inputs args",
    "batch_size": "bs",
    "best": "monitor metric_for_best_model save_best",
    "best_metric": "monitor",
    "best_mode": "mode greater_is_better",
    "buffers": "use_buffers",
    "chunk_size": "chunks vmap_chunk_size",
    "collate": "collate_fn",
    "columns": "nrow ncols",
    "conditions": "labels cond y",
    "critic_updates": "n_critic critic_iters critic_steps d_steps num_critic",
    "critic": "discriminator model net netD D",
    "decay": "beta ema_decay alpha momentum",
    "depth": "max_depth",
    "directory": "log_dir logdir save_dir dirpath output_dir root",
    "dynamic_batch": "dynamic_axes dynamic_shapes",
    "epochs": "num_epochs n_epochs max_epochs",
    "every_seconds": "train_time_interval",
    "every_steps": "every_n_train_steps save_steps save_freq save_every",
    "fail_on": "strict error_on exit_on",
    "fake": "fake_samples fake_data fake_images generated",
    "fft_size": "n_fft nfft",
    "final": "min_lr eta_min end_lr lr_end final_lr",
    "function": "fn func target",
    "growth": "growth_factor",
    "growth_interval": "scale_window",
    "high": "vmax max",
    "hop_size": "hop_length hop",
    "initial": "init_scale initial_scale",
    "keep_best": "save_top_k",
    "keep_last": "save_total_limit max_to_keep",
    "loss": "loss_fn criterion closure",
    "low": "vmin min",
    "limit": "max_steps num_steps num_batches max_batches limit_train_batches limit_val_batches",
    "lr": "learning_rate",
    "max_norm": "max max_grad_norm clip_norm gradient_clip_val value clip",
    "max_value": "max clip_value gradient_clip_val value clip",
    "metric": "monitor",
    "micro_batch": "microbatch micro_batch_size",
    "model": "module net network",
    "module": "model net network",
    "modules": "model module net network",
    "noise": "latent_dim z_dim nz latent noise_dim",
    "norm_type": "p ord norm",
    "num_bands": "n_bands subbands",
    "num_samples": "n num_return_sequences",
    "num_workers": "workers",
    "optimizer": "opt optim",
    "out": "output_dir output log_dir save_dir directory dir",
    "path": "f file filename save_path",
    "penalty": "lambda lamda lambda_gp gp_weight gp penalty_weight",
    "pixels": "image img images data",
    "processes": "nprocs num_processes world_size devices nproc_per_node",
    "rate": "sample_rate sr sampling_rate",
    "ratio": "max clipping clip_factor",
    "real": "real_samples real_data real_images",
    "replacement": "replace",
    "resolutions": "n_fft fft_size fft_sizes hop_size",
    "scale": "scale_factor factor size",
    "source": "path file filename checkpoint_path f",
    "start": "div_factor initial_lr start_lr",
    "starts_at": "update_after_step start_step",
    "string": "text",
    "target": "path file f filename k",
    "temperature": "temp tau",
    "threads": "num_threads cpus",
    "total": "max_epochs num_epochs epochs n_epochs max_steps num_steps steps",
    "total_steps": "num_training_steps T_max max_steps max_iters num_steps epochs steps",
    "warmup": "pct_start use_num_updates",
    "warmup_steps": "warmup num_warmup_steps warmup_iters warmup_updates warmup_epochs",
    "wave": "audio waveform data",
    "weights": "weight mask loss_mask sample_weight sample_weights",
    "width": "hidden hidden_size hidden_dim",
    "window_size": "win_length win_size",
}


def advice_by_word(rows: str) -> dict[str, str]:
    """Return what to write for each word: a row has words and an advice, and goes on where the next line is indented."""
    found = (row.partition(": ") for row in rows.replace("\n    ", " ").strip().split("\n"))
    return {word: advice for words, _, advice in found for word in words.split()}


# Words that count batches for one update, where `micro_batch` counts examples.
ACCUMULATE = ("accumulate", "accumulation", "accumulation_steps", "accumulate_steps", "accumulate_grad_batches",
              "gradient_accumulation_steps", "grad_accum_steps", "grad_accum", "accum_iter", "accum_steps")  # fmt: skip
ACCUMULATED = (
    "the whole batch of an update where the data are, and what of it fits into memory where the learner is made: 4 batches of 32 "
    "are run.data(data, batch_size=4 * 32) and run.learner(net, optimizer, micro_batch=32). Losses are averaged over the whole "
    "batch: nothing is divided by 4"
)

# A public function, and what to write for words that stand for no option of it.
OPTIONS = {
    "ts.gradient_penalty": dict.fromkeys(
        ("lambda_gp", "gp_weight", "gp_lambda", "lambda_", "lamda", "weight", "coefficient", "gamma"),
        "the factor before it: 10 * ts.gradient_penalty(critic, real, fake)",
    ),
    "ts.Saving": {
        "patience": "ts.EarlyStopping(patience=3, mode='min') in the loop; docs/howto/early-stopping.md shows it whole",
        "dirpath": "the directory first, where the run is made: ts.Run(directory, saving=...)",
        "filename": "nothing: checkpoints lie in the run's directory, called by their step",
        "save_weights_only": "ts.export_weights(run.directory, 'weights.safetensors') when the run is closed",
    },
    "ts.update": dict.fromkeys(ACCUMULATE, ACCUMULATED),
    "ts.one_cycle": {"max_lr": "nothing: the peak is the optimizer's own lr", "pct_start": "warmup=0.3"},
    "ts.clip_gradients": dict.fromkeys(("max_norm", "max", "norm"), "clip=ts.ClipNorm(1.0)"),
    "ts.summary": dict.fromkeys(
        ("input_size", "input_shape", "shape"), "a batch of zeros: ts.summary(net, torch.zeros(2, 3))"
    ),
    "ts.seed_everything": {
        "workers": "nothing: run.data seeds its workers, and a DataLoader draws their seeds from torch's"
    },
    "ts.EMA": {"model": "it where the learner is made: run.learner(net, optimizer, ema=ts.EMA(0.999))"},
}

# A public function, and what is said where its arguments do not fit and no option is wrong.
FORMS = {
    "ts.Learner": "A learner is made by a run: net = run.learner(module, lambda p: torch.optim.AdamW(p, lr=1e-3)).",
    "ts.Update": "An update is made by a learner: update = net.update(loss, batch).",
    "ts.update": (
        "ts.update takes learners, one loss of them all, and a batch: ts.update([a, b], loss, batch). A single learner has its "
        "own: net.update(loss, batch)."
    ),
}

# Names that people look for in this package, and what to write.
NAMES = advice_by_word("""
Trainer Fabric Accelerator LightningModule TrainingArguments Engine fit train Model: The loop is yours: run = ts.Run(directory),
    net = run.learner(module, optimizer), and then for batch in run.batches(source): net.update(loss, batch)
early_stopping early_stop EarlyStop EarlyStoppingCallback: Write early = ts.EarlyStopping(patience=3, mode='min'), and in the
    loop if early.step(valid_loss): run.finish(); docs/howto/early-stopping.md shows it whole
ModelCheckpoint Checkpoint save save_checkpoint Saver: A run saves itself: ts.Run(directory, saving=ts.Saving(best='accuracy',
    keep_best=1))
load load_checkpoint load_model resume load_from_checkpoint: A run goes on by itself, ts.Run(directory) of the same directory;
    for weights alone write ts.load_weights(module, path)
Callback callbacks: The loop is plain python: what a callback would do stands in its body
DataLoader DataModule LightningDataModule Loader: Write run.data(data_set, batch_size=64, shuffle=True)
GradScaler autocast amp mixed_precision: Write ts.Run(directory, precision="bf16-mixed")
seed set_seed manual_seed seed_all: Write ts.Run(directory, seed=0), or ts.seed_everything(0)
WandbLogger WandBLogger WandbCallback wandb: Write ts.Run(directory, trackers=[ts.WandbTracker("project")])
MLFlowLogger MLflowCallback MlflowLogger mlflow: Write ts.Run(directory, trackers=[ts.MlflowTracker("experiment")])
log Logger TensorBoardLogger SummaryWriter CSVLogger: Write run.log(accuracy=0.9); it also goes to ts.Run(directory,
    trackers=[ts.TensorBoardTracker()])
LearningRateMonitor ProgressBar tqdm: A run logs learning rates and shows its progress by itself
evaluate validate test predict no_grad: net.evaluate(values, data) measures a learner, without gradients
clip_grad_norm clip_grad_norm_: Write run.learner(..., clip=ts.ClipNorm(1.0)), or ts.clip_gradients
gp wgan_gp wgangp r1 r1_penalty r1_regularization compute_gradient_penalty calc_gradient_penalty gradient_penalty_loss: Write
    10 * ts.gradient_penalty(critic, real, fake) into the loss, one value per example
huggingface hf HuggingFace transformers_callback: Write ts.transformers.ExactResume(directory) among the callbacks of a Trainer
pytorch_lightning pl ptl: Write ts.lightning.ExactResume(directory) among the callbacks of a Lightning Trainer
DistributedDataParallel DDP DataParallel FSDP init_process_group: Nothing is wrapped: start the script with truestep launch
    --processes 4 train.py, and choose by ts.Run(strategy=...)
learner data epochs batches steps finish track: It is a run's: run = ts.Run(directory), run.{name}(...)
metrics: Give net.evaluate what torchmetrics makes: net.evaluate(outputs, data, metric=torchmetrics.Accuracy(...))
""")
_TORCH = ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data")  # fmt: skip


def option_by_other_name(word: str, known: list[str]) -> str | None:
    """Return which of a function's options another library calls by this word; None where there is none."""
    return next((option for option in known if word in _WORDS.get(option, "").split()), None)


def name_from_other_library(name: str) -> str | None:
    """Return what to write for a name that this package does not have: as a sentence; None where nothing is known."""
    if name in NAMES:
        return f"{NAMES[name].format(name=name)}."
    homes = (home for home in _TORCH if not name.startswith("_") and hasattr(sys.modules.get(home), name))
    return next((f"It is torch's: {home}.{name}." for home in homes), None)
