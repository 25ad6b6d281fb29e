# SPDX-License-Identifier: Apache-2.0
"""What is said of each thing that is done beside a learner's updates: what happened, why it matters, what to write."""

_BLOCK = "For losses that are computed one after another write with net.accumulating() as update: update.backward(loss)."
OWN_STEP = (
    "The optimizer of {name!r} was stepped by hand. net.update(loss, batch) makes the step itself: another one moves the weights "
    "twice with the same gradients, and schedule, average and counts know nothing of it. Leave optimizer.step() out. "
    f"{_BLOCK}"
)
OWN_STEP_BY_HAND = (
    "The optimizer of {name!r} was stepped by hand, with gradients of a backward() of your own. Its steps are its updates': "
    "schedule, average and counts would know nothing of this one. Write net.update(loss, batch) for backward, step and zero_grad; "
    "where gradients of several batches were added up, make the batch as many times larger, run.data(data, batch_size=4 * 32), "
    "and give run.learner(module, optimizer, micro_batch=32). "
    f"{_BLOCK}"
)
SECOND_STEP = (
    "{kind}.step() was called on an optimizer that holds weights of {name!r}, whose update has made its step already with the "
    "optimizer that run.learner made: the weights would move twice with the same gradients. Leave this optimizer out, with "
    "backward(), step() and zero_grad(); its options go where the learner is made: "
    "net = run.learner(module, lambda p: torch.optim.{kind}(p, ...))."
)
STEP_BY_HAND = (
    "{kind}.step() moves weights of {name!r} beside its updates, with gradients of a backward() of your own. No checkpoint keeps "
    "this optimizer, so a run that is stopped goes on otherwise than it would have. Write net.update(loss, batch) for this step, "
    "too; if it is to stay, have the run keep the optimizer: run.track(own=optimizer) before the loop."
)
_SCHEDULE = (
    "run.learner(module, optimizer, schedule=ts.per_epoch(lambda o: torch.optim.lr_scheduler.{kind}(o, ...))), which steps it "
    "after each epoch; ts.per_update(...) after each update."
)
SECOND_SCHEDULE = (
    "{kind}.step() was called, and the learning rate of {name!r} is set by its schedule= ({schedule}) already: each would undo "
    "what the other does. Leave one of the two out. For one after the other give schedule= a torch.optim.lr_scheduler.SequentialLR."
)
SCHEDULE_OF_NONE = (
    "{kind}.step() was called on the schedule of an optimizer that never steps: {name!r} is trained by the optimizer that "
    "run.learner made, so its learning rate would stay at {rate:g}. Leave scheduler.step() out and give the schedule to the "
    f"learner: {_SCHEDULE}"
)
SCHEDULE_BY_HAND = (
    "{kind}.step() moves the learning rate of {name!r} beside its updates. No checkpoint keeps this schedule, so a run that is "
    "stopped begins it anew. Leave scheduler.step() out and give the schedule to the learner: "
    f"{_SCHEDULE} If it is to stay, have the run keep it: run.track(scheduler=scheduler) before the loop."
)
CLEARED = "zero_grad() does nothing for {name!r}: each net.update(loss, batch) clears its gradients itself. Leave the line out."
_CLIP = "torch.nn.utils.clip_grad_{0}_ was called on the gradients of {{name!r}} "
_CLIP_SO = "Leave the line out and write run.learner(module, optimizer, clip={1}). update.gradient_norm is the norm before."
_LATE = "behind its update, which has made its step by then: nothing is clipped. "
_EARLY = "within its update, before they are whole: the update clips once, behind all parts of the batch. "
_CLIPS = {"norm": "ts.ClipNorm(1.0)", "value": "ts.ClipValue(0.5)"}
CLIPPED = {by: f"{_CLIP}{_LATE}{_CLIP_SO}".format(by, instead) for by, instead in _CLIPS.items()}
CLIPPED_WITHIN = {by: f"{_CLIP}{_EARLY}{_CLIP_SO}".format(by, instead) for by, instead in _CLIPS.items()}
BACKWARD_BEHIND = (
    "backward() was called on a tensor without a gradient. If it is what an update returned: net.update(loss, batch) has made "
    "backward and step by then, and update.loss is a number to look at. Leave backward(), step() and a GradScaler around it out; "
    'mixed precision is ts.Run(directory, precision="bf16-mixed").'
)
SCALED = (
    "The loss function multiplied a loss by the factor of a GradScaler ({scale:g}). An update takes no factor away that it does "
    "not know, so loss and gradients would be as many times too large. Return the loss as it is, and let the run scale: "
    'ts.Run(directory, precision="fp16-mixed"); "bf16-mixed" needs no factor. A gradient penalty is ts.gradient_penalty.'
)
WENT_BACK = (
    "backward() beside an update made gradients in {name!r} that nothing uses: the next net.update(loss, batch) clears them and "
    "computes its own. To train on this loss, return it from the loss function, or add it there to the other. "
    f"{_BLOCK} For a gradient with respect to inputs write torch.autograd.grad(value, inputs), which leaves .grad alone."
)
