# SPDX-License-Identifier: Apache-2.0
"""Names that other libraries' models, and what they return, have, with what to write here."""

from truestep.core.other_words import ACCUMULATE, ACCUMULATED, advice_by_word

_LOOP = "for batch in run.batches(source): net.update(loss, batch)"
_UPDATES = f"An update is one call, backward, clipping, step and schedule included: {_LOOP}."
_COMPUTED = "A loss that is computed already goes into a block: with net.accumulating() as update: update.backward(loss)."
LEARNER = advice_by_word(f"""
fit train_model train_epoch: The loop is yours: {_LOOP}.
step train_step training_step train_on_batch train_batch: {_UPDATES}
backward manual_backward: {_UPDATES} {_COMPUTED}
clip_gradients optimizer_step lr_schedulers configure_optimizers: {_UPDATES}
optimizer scheduler lr_scheduler: {_UPDATES} Its optimizers are net.optimizers.
lr get_last_lr: Write net.learning_rate.
predict predict_step: Call it: with torch.no_grad(): outputs = net(inputs).
validate test score compute_metrics validation_step accuracy: Measure with net.evaluate(values, data).
save save_pretrained save_checkpoint save_weights: The run saves itself; for a file of the weights write
    torch.save(net.module.state_dict(), "weights.pt").
load load_weights load_from_checkpoint from_pretrained: Write ts.load_weights(net.module, "weights.pt").
log log_dict log_metrics: The run logs: run.log(accuracy=0.9).
freeze freeze_encoder: Write ts.freeze(net, "encoder.*"); ts.unfreeze lets them train again.
unfreeze: Write ts.unfreeze(net, "encoder.*").
clip micro_batch loss_scale scaler: It is said where the learner is made, run.learner(..., clip=ts.ClipNorm(1.0)), and repr(net)
    tells of it.
schedule schedules schedulers: A schedule is given where the learner is made, run.learner(..., schedule=...), and the update
    moves it: nothing else steps it. net.learning_rate is the rate of now.
precision autocast: It is said where the run or the learner is made: precision=...; repr(net) tells of it.
loss grad_norm gradient_norm: update = net.update(loss, batch) has it: update.loss, update.gradient_norm.
param_groups: An optimizer has them: net.optimizers[0].param_groups.
no_grad inference_mode: net.evaluate(values, data) measures without gradients; elsewhere torch.no_grad() does.
epoch: The run counts: run.epoch.
device: The run has it: run.device.
dtype: The precision decides it: ts.Run(directory, precision=...).
current_epoch global_step trainer: The run counts: run.epoch, run.step.
ema ema_model average: Within a block the weights are the average: with net.averaged(): ...
summary: Write print(ts.summary(net.module, batch)).
hparams save_hyperparameters: The run keeps them: ts.Run(directory, config={{...}}).
sample generate: It is a function of yours, net(noise): with net.averaged(): net(noise) takes the average of the weights.
no_sync: Processes share gradients once an update by themselves: nothing is to be written.
""")
NEW_UPDATE = advice_by_word("""
clip clip_norm max_norm max_grad_norm gradient_clip_val: it where the learner is made: run.learner(module, optimizer,
    clip=ts.ClipNorm(1.0))
optimizer opt optimizers scheduler lr_scheduler schedule: it where the learner is made: run.learner(module, optimizer,
    schedule=...)
retain_graph create_graph zero_grad set_to_none inputs gradient: nothing: the update clears the gradients and goes back through
    the loss once; a gradient that the loss itself needs is torch.autograd.grad(value, inputs, create_graph=True)
scaler grad_scaler autocast amp: ts.Run(directory, precision="bf16-mixed")
step epoch batch_idx global_step iteration: nothing: run.batches counts; run.step is the number
model module net learner: nothing: the loss calls it, net(inputs)
targets labels target y: them into the batch: net.update(loss, (inputs, targets))
weights weight sample_weight: them into what the loss returns: ts.weighted(losses, weights)
lr learning_rate: it in the optimizer's factory: lambda p: torch.optim.AdamW(p, lr=1e-3)
every interval frequency n_critic: it into the loop: if run.step % 5 == 0: net.update(loss, batch)
starts_at start after: it where the learner is made: run.learner(module, optimizer, starts_at=1000)
""") | dict.fromkeys(ACCUMULATE, ACCUMULATED)
UPDATE = advice_by_word("""
item detach cpu numpy mean data tolist: the loss is update.loss, a number is float(update.loss)
backward step zero_grad: backward, clipping and step are done by then: for the number write float(update.loss)
accuracy acc metrics values correct: the loss gives what is to be averaged beside it, ts.weighted(losses, accuracy=correct), for
    metrics.jsonl and the report, and what is wanted at once as ts.weighted(losses, outputs={...}), for update.outputs
grad_norm norm total_norm: write update.gradient_norm
lr learning_rate: the learner has it: net.learning_rate
logits output predictions: the loss hands it out, ts.weighted(values, outputs={...}), for update.outputs
""")
ACCUMULATING = advice_by_word("""
loss gradient_norm skipped metrics item: once the block has ended it is update.result.loss, and the like
step zero_grad optimizer_step: the step is made at the end of the block, once update.backward(loss) had all losses
""")
