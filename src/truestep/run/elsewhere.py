# SPDX-License-Identifier: Apache-2.0
"""Options and calls as other libraries have them, with what to write here."""

from truestep.core.other_words import ACCUMULATE, ACCUMULATED, advice_by_word

RUN = advice_by_word("""
callbacks callback plugins: it into the loop's body: the loop is plain python
max_steps num_steps total_steps steps: the number in the loop: for step in run.steps(10_000)
gradient_clip_val gradient_clip_algorithm max_grad_norm clip: it where the learner is made: run.learner(net, optimizer,
    clip=ts.ClipNorm(1.0))
micro_batch: it where the learner is made: run.learner(net, optimizer, micro_batch=...) is the largest number of examples
    computed at once: the batch is split, the update stays the same
logger loggers log_with report_to project_dir tensorboard: trackers=[ts.TensorBoardTracker()], or ts.WandbTracker("project"), or
    ts.MlflowTracker("experiment"); metrics.jsonl and the report are always written
wandb wandb_project project entity: trackers=[ts.WandbTracker("project")]
mlflow experiment_name tracking_uri: trackers=[ts.MlflowTracker("experiment")]
devices num_nodes nprocs num_processes world_size n_gpu: device="cuda" for one; for several start the script with truestep
    launch --processes 4 train.py
enable_progress_bar disable_tqdm enable_model_summary: progress=False for no bar
enable_checkpointing save_top_k save_total_limit: saving=ts.Saving(every_steps=1000, keep_last=2)
benchmark detect_anomaly profiler inference_mode: torch's own switch before the run is made
fast_dev_run limit_train_batches limit_val_batches overfit_batches: the limit in the loop: run.batches(source, limit=10)
check_val_every_n_epoch val_check_interval eval_steps: it in the loop: if epoch % 5 == 0: run.log(accuracy=net.evaluate(correct,
    test))
sync_batchnorm use_distributed_sampler: nothing: batch norm and the order of samples are exact over processes
model module net optimizer learner: net = run.learner(module, optimizer) when the run is made
learning_rate lr: it in the optimizer's factory: run.learner(net, lambda p: torch.optim.AdamW(p, lr=1e-3))
epochs num_epochs max_epochs: the number in the loop: for epoch in run.epochs(20)
amp mixed_precision dtype fp16 bf16: precision="bf16-mixed"
save_every save_steps checkpoint_every checkpointing keep_last: saving=ts.Saving(every_steps=1000, keep_last=2)
dir path root log_dir output_dir name default_root_dir logging_dir run_dir: it first: ts.Run("runs/digits")
log_interval logging_steps log_every_n_steps: log_every=10
accelerator gpu gpus cuda: device="cuda"
hparams hyperparameters: config={...}
ckpt_path checkpoint_path checkpoint: nothing: start the program again, and it goes on by itself; of another run
    ts.load_weights(module, path) takes weights
resume_from_checkpoint: resume="must"; the checkpoint is the newest sound one of the directory
verbose: progress=False for no bar
batch_size: run.data(data_set, batch_size=...)
""") | dict.fromkeys(ACCUMULATE, ACCUMULATED)
LEARNER = advice_by_word("""
clip_norm max_norm max_grad_norm clip_grad_norm grad_clip gradient_clip_val: clip=ts.ClipNorm(1.0)
clip_value: clip=ts.ClipValue(0.5)
microbatch microbatch_size micro_batch_size: micro_batch=...
amp mixed_precision dtype fp16 bf16 autocast: precision="bf16-mixed"
scheduler lr_scheduler lr_schedule: schedule=lambda o: ts.warmup_cosine(o, ...)
ema_decay use_ema average: ema=ts.EMA(decay=0.999)
lr learning_rate weight_decay betas momentum: it in the optimizer's factory: lambda p: torch.optim.AdamW(p, lr=1e-3)
optim opt optimizers: optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3)
module model net: the module first: run.learner(net, optimizer)
scaler grad_scaler: loss_scale=..., with a float16 precision
nonfinite: it for the whole run: ts.Run(directory, nonfinite=...)
device: it for the whole run: ts.Run(directory, device="cuda")
decomposable: it where the loss is given: net.update(loss, batch, decomposable=False)
""") | dict.fromkeys(ACCUMULATE, ACCUMULATED)

BATCHES = advice_by_word("""
epochs num_epochs: the loop around it: for epoch in run.epochs(20)
batch_size shuffle num_workers drop_last collate: it where the source is made: run.data(data_set, batch_size=64, shuffle=True)
desc total progress: nothing: the run shows a bar by itself
device to: nothing: batches come on the run's device
""")
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
ATTRIBUTES = advice_by_word("""
fit train training_step update train_step start: the loop is yours: net = run.learner(module, optimizer), and then for batch in
    run.batches(source): net.update(loss, batch)
backward manual_backward optimizer_step zero_grad clip_gradients: net.update(loss, batch) does backward, clipping, step and
    schedule; net.accumulating() takes computed losses
optimizer optimizers scheduler lr_schedulers: a learner has them: net.optimizers, net.learning_rate
evaluate validate test predict: net.evaluate(values, data) measures a learner
load resume resume_from restore load_checkpoint load_state: a run goes on by itself: ts.Run(directory) of the same directory.
    Weights of its best checkpoint are ts.load_weights(module, run.directory, checkpoint='highest accuracy')
save_checkpoint save_state save_model: run.save() saves all of it at the next moment between two batches, and a run saves itself
    as ts.Saving says
log_metrics log_dict log_metric add_scalar logger log_scalar: write run.log(accuracy=0.9), or run.log(**values)
log_image log_images add_image add_figure log_audio log_text: write run.log(samples=ts.Image(pixels)), ts.Audio(wave, rate) or
    ts.Text(string)
save_image save_images save_samples add_images: write run.log(samples=ts.Image(pixels)), which the report shows, or
    torchvision.utils.save_image(pixels, run.directory / "samples.png")
push_to_hub upload: write net.module.push_to_hub(...) behind the loop: the module is as it was given
loader dataloader dataset train_dataloader: write run.data(data_set, batch_size=64, shuffle=True)
global_step iteration num_steps batch_idx: run.step counts the batches given out so far
current_epoch epoch_idx: run.epoch is the epoch under way, from 0
stop end should_stop stop_training should_training_stop: run.finish() ends the run, when this body is over
callbacks callback add_callback on: the loop is plain python: what a callback would do stands in its body
path log_dir dir default_root_dir output_dir: the run's folder is run.directory
global_rank process_index: run.rank is this process's number
is_global_zero is_main_process is_local_main_process: write run.is_main
num_processes num_devices: write run.world_size
prepare setup wrap: net = run.learner(module, optimizer), and source = run.data(data_set, batch_size=64)
print: write if run.is_main: print(...)
model net module: a run may have several: net = run.learner(module, optimizer)
metrics history logged_metrics callback_metrics: what was logged stands in run.directory / 'metrics.jsonl'
hparams hyperparameters: ts.Run(directory, config={...}) keeps them, as run.config
barrier wait_for_everyone no_sync all_reduce sync_gradients: the processes of a run meet at each update by themselves
gather all_gather gather_for_metrics reduce: write ts.gather(tensor); net.evaluate averages over all
accumulate: write the whole batch of an update where the data are, and what of it fits into memory where the learner is made: 4
    batches of 32 are run.data(data, batch_size=4 * 32) and run.learner(net, optimizer, micro_batch=32). Losses are averaged
    over the whole batch: nothing is divided by 4
autocast scaler scale_loss: ts.Run(directory, precision=...) does it, around the whole loss
clip_grad_norm_ clip_grad_norm clip_grad_value_: write run.learner(..., clip=ts.ClipNorm(1.0))
unwrap_model unwrap: nothing is wrapped: the module is net.module
log_hyperparams save_hyperparameters: ts.Run(directory, config={...}) keeps them
watch: the run looks at its layers by itself: ts.Run(directory, watch_layers=...)
summary report: write print(ts.summary(net, batch)) for a model, ts.write_report(run.directory) for the run
seed name: it is in what the run was made with; run.directory.name is what its folder is called
batch_size: a source has it: run.data(data_set, batch_size=64)
lr learning_rate: a learner has it: net.learning_rate
""")
SET = advice_by_word("""
should_stop stop finished stop_training: run.finish() ends the run, when this body is over
step epoch: the run counts it; run.steps, run.epochs and run.batches move it
callbacks logger: the loop is plain python: what a callback would do stands in its body
max_epochs max_steps: the loop says it: for epoch in run.epochs(20), for step in run.steps(10_000)
""") | {
    name: f"it is said where the run is made, ts.Run(directory, {name}=...)"
    for name in (
        "precision", "saving", "config", "resume", "directory", "strategy", "device", "trackers", "seed", "log_every",
    )
}  # fmt: skip

# What `run.log` would write down as a value, and is an option of the loggers of other libraries.
LOGGED = advice_by_word("""
on_step on_epoch reduce_fx: a value is written as it is, where it is logged; ts.weighted(values, accuracy=...) is averaged over
    the updates, and net.evaluate over data
prog_bar: the bar shows what was logged last by itself
sync_dist sync_dist_group rank_zero_only: all processes log the same number: ts.gather collects what differs, net.evaluate
    averages over all
logger add_dataloader_idx commit: all goes to metrics.jsonl and to the run's trackers
step global_step: each line has run.step already; a count of your own needs another name
""")
