# SPDX-License-Identifier: Apache-2.0
"""Checks that were taken out: what still names one is passed over, with one line that says why it went."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RetiredCheck:
    """A check that was taken out; its code and its name are never used again."""

    name: str
    reason: str


# code, name and reason, in a row each
_TABLE = """\
AMP002 backward-inside-autocast: no code of strangers is known in which it was true.
AMP003 scaler-never-updated: torch raises there.
AMP004 unscaled-twice: torch raises there.
AMP005 autocast-without-device: torch raises there.
AMP006 half-type-in-numpy: torch raises there.
AMP008 momentum-of-skipped-step: no code of strangers is known in which it was true.
AMP009 fused-sgd-in-half: no code of strangers is known in which it was true.
AMP010 scaler-switched-by-other-word: no code of strangers is known in which it was true; the plain form is AMP007.
AMP011 unscaled-in-every-micro-batch: no code of strangers is known in which it was true.
AMP012 backward-unscaled: no code of strangers is known in which it was true.
DATA004 workers-seeded-alike: no code of strangers is known in which it was true; the plain form is DATA003.
DATA007 batches-stacked: no code of strangers is known in which it was true.
DATA008 double-precision-from-numpy: torch raises there.
DATA009 fractions-truncated: no code of strangers is known in which it was true.
DATA011 lengths-unsorted: torch raises there.
DATA012 variance-by-difference: no code of strangers is known in which it was true.
DATA021 inputs-all-alike: no code of strangers is known in which it was true; the plain form is DATA041.
DATA022 recurrence-over-batch: no code of strangers is known in which it was true; the plain form is DATA010.
DATA031 hidden-state-viewed: no code of strangers is known in which it was true.
DATA034 input-as-target: DATA033 says it.
DATA035 same-order-every-epoch: no code of strangers is known in which it was true; the plain form is DATA001.
DATA036 listings-paired-unsorted: in code of strangers it was false more often than true (0 true, 2 false).
DATA037 padding-mask-inverted: no code of strangers is known in which it was true; the plain form is LOSS026.
DATA039 mask-weighs-as-zero: in code of strangers it was never clearly true (1 debatable).
DATA042 padding-seen-alone: no code of strangers is known in which it was true; the plain form is LOSS026.
DATA043 pair-augmented-apart: in code of strangers it was false more often than true (0 true, 3 false).
DEV002 variable-name-unquoted: undefined names are VALUE041.
DEV004 gpu-indices-cut: no code of strangers is known in which it was true.
DEV007 trained-on-host: no code of strangers is known in which it was true; the plain form is DEV005.
DEV008 benchmark-with-varying-shapes: no code of strangers is known in which it was true; the plain form is DEV003.
DIST002 loader-without-sampler: no code of strangers is known in which it was true.
DIST003 all-ranks-on-first-device: no code of strangers is known in which it was true.
DIST007 unused-parameters-searched: no code of strangers is known in which it was true.
DIST008 mean-of-means: in code of strangers it was false more often than true (0 true, 3 false).
DIST010 rank-thrown-away: no code of strangers is known in which it was true.
DIST011 group-not-destroyed: no code of strangers is known in which it was true.
DIST012 port-fixed: no code of strangers is known in which it was true.
DIST013 sync-batch-norm-uneven: in code of strangers it was false more often than true (0 true, 7 false).
DIST014 layer-unused-under-ddp: no code of strangers is known in which it was true; the plain form is DIST005.
DIST016 saved-by-every-rank: in code of strangers it was never clearly true (2 debatable).
EVAL005 gradients-switched-on-inside: no code of strangers is known in which it was true; the plain form is EVAL004.
EVAL006 dropout-unscaled: no code of strangers is known in which it was true; the plain form is EVAL001.
EVAL007 dropout-rate-as-keep-rate: no code of strangers is known in which it was true; the plain form is EVAL001.
EVAL010 trained-in-evaluation-mode: no code of strangers is known in which it was true; the plain form is EVAL003.
EVAL014 method-not-called: no code of strangers is known in which it was true; the plain form is EVAL002.
EVAL015 training-flag-set: in code of strangers it was false more often than true (0 true, 1 false).
EVAL016 no-grad-without-with: no code of strangers is known in which it was true; the plain form is EVAL004.
EVAL018 means-divided-by-examples: no code of strangers is known in which it was true; the plain form is DATA002.
EVAL034 accuracy-impossible: no code of strangers is known in which it was true.
EVAL035 best-never-beaten: no code of strangers is known in which it was true.
EVAL037 mode-against-metric: no code of strangers is known in which it was true.
EVAL038 monitored-never-logged: no code of strangers is known in which it was true.
EVAL040 patience-never-reset: no code of strangers is known in which it was true.
EVAL046 nearest-is-itself: no code of strangers is known in which it was true; the plain form is EVAL041.
EVAL047 first-batch-evaluated: no code of strangers is known in which it was true; the plain form is DATA002.
EVAL048 figure-of-wrong-mean: no code of strangers is known in which it was true; the plain form is DATA002.
EVAL049 eval-on-one-way-only: no code of strangers is known in which it was true; the plain form is EVAL002.
EVAL050 mode-alike-on-both-ways: no code of strangers is known in which it was true; the plain form is EVAL002.
EVAL051 best-by-wrong-direction: no code of strangers is known in which it was true; the plain form is SAVE002.
GRAD014 gradient-alias-zeroed: no code of strangers is known in which it was true.
GRAD015 gradient-rows-shared: no code of strangers is known in which it was true.
GRAD017 value-changed-behind-autograd: no code of strangers is known in which it was true; the plain form is GRAD022.
GRAD018 gradient-clamped-by-hand: no code of strangers is known in which it was true; the plain form is GRAD008.
GRAD019 tensor-zero-grad: torch raises there.
GRAD021 closure-missing: torch raises there.
GRAD028 critic-stepped-on-generator-loss: no code of strangers is known in which it was true; the plain form is GRAD020.
GRAD029 clip-of-other-parameters: in code of strangers it was false more often than true (0 true, 1 false).
GRAD042 step-larger-than-weights: no code of strangers is known in which it was true.
GRAD043 penalty-without-graph: in code of strangers it was false more often than true (0 true, 1 false).
GRAD044 backward-for-a-penalty: no code of strangers is known in which it was true.
GRAD047 cleared-before-last-backward: no code of strangers is known in which it was true; the plain form is GRAD004.
GRAD048 optimizer-never-stepped: no code of strangers is known in which it was true.
GRAD049 term-without-gradient: no code of strangers is known in which it was true; the plain form is GRAD022.
GRAD050 foreign-gradients-kept: in code of strangers it was false more often than true (0 true, 1 false).
GRAD051 training-step-gives-nothing: no code of strangers is known in which it was true; the plain form is GRAD007.
GRAD052 training-step-without-graph: no code of strangers is known in which it was true; the plain form is GRAD007.
GRAD053 penalty-norm-over-batch: no code of strangers is known in which it was true.
GRAD054 penalty-mixed-by-one-weight: no code of strangers is known in which it was true.
GRAD055 penalty-through-batch-norm: no code of strangers is known in which it was true.
GRAD056 accumulated-loss-divided-twice: no code of strangers is known in which it was true; the plain form is GRAD005.
GRAD057 loss-never-trained-on: no code of strangers is known in which it was true; the plain form is GRAD022.
GRAD058 term-of-choices: no code of strangers is known in which it was true; the plain form is GRAD022.
GRAD059 advantage-with-gradient: no code of strangers is known in which it was true.
GRAD060 stepped-without-a-way: no code of strangers is known in which it was true; the plain form is GRAD020.
GRAD061 clipped-in-every-micro-batch: no code of strangers is known in which it was true; the plain form is GRAD008.
GRAD062 step-test-never-holds: no code of strangers is known in which it was true; the plain form is GRAD007.
GRAD064 stepped-twice: no code of strangers is known in which it was true; the plain form is GRAD007.
GRAD065 latent-drawn-without-gradient: no code of strangers is known in which it was true; the plain form is GRAD022.
LOSS004 float-class-indices: torch raises there.
LOSS005 class-weights-of-wrong-type: torch raises there.
LOSS008 integer-targets-in-bce: torch raises there.
LOSS009 one-hot-without-classes: in code of strangers it was false more often than true (1 true, 2 false).
LOSS013 unreduced-loss-in-backward: torch raises there.
LOSS016 loss-unbound: in code of strangers it was false more often than true (1 true, 2 false).
LOSS018 only-one-class: no code of strangers is known in which it was true; the plain form is LOSS023.
LOSS025 criterion-left-on-host: in code of strangers it was never clearly true (1 debatable).
LOSS031 squared-error-of-probabilities: no code of strangers is known in which it was true.
LOSS032 labels-pick-columns: no code of strangers is known in which it was true.
LOSS033 likelihood-made-small: no code of strangers is known in which it was true; the plain form is GRAD030.
LOSS034 sum-added-to-mean: no code of strangers is known in which it was true.
LOSS037 target-carries-gradient: in code of strangers it was never clearly true (2 debatable).
LOSS038 compared-with-itself: no code of strangers is known in which it was true.
LOSS039 divergence-of-raw-values: in code of strangers it was never clearly true (6 debatable).
LOSS040 probabilities-in-critic-loss: no code of strangers is known in which it was true.
LOSS041 divergence-turned-round: no code of strangers is known in which it was true.
LOSS042 scores-pushed-alike: no code of strangers is known in which it was true.
LOSS043 hinge-one-sided: in code of strangers it was false more often than true (0 true, 5 false).
LOSS044 ratio-upside-down: no code of strangers is known in which it was true.
LOSS045 deviation-without-half: no code of strangers is known in which it was true.
LOSS046 target-given-to-model: no code of strangers is known in which it was true.
LOSS047 margin-on-wrong-side: no code of strangers is known in which it was true.
LOSS048 signal-without-root: no code of strangers is known in which it was true.
LOSS049 logits-not-shifted: no code of strangers is known in which it was true.
LOSS051 divergence-made-large: no code of strangers is known in which it was true; the plain form is GRAD030.
LOSS052 padding-trained-on: no code of strangers is known in which it was true; the plain form is LOSS026.
LOSS053 divergence-over-batch: no code of strangers is known in which it was true.
LOSS054 itself-among-negatives: no code of strangers is known in which it was true.
LOSS055 variance-of-other-logarithm: no code of strangers is known in which it was true.
LOSS056 overlap-made-small: no code of strangers is known in which it was true; the plain form is GRAD030.
LOSS057 softmax-before-split: no code of strangers is known in which it was true; the plain form is DATA015.
LOSS058 offsets-by-other-size: no code of strangers is known in which it was true.
MEM002 outputs-kept-with-graph: in code of strangers it was never clearly true (2 debatable).
MEM004 losses-kept-alive: no code of strangers is known in which it was true; the plain form is MEM001.
MEM005 step-outputs-kept: no code of strangers is known in which it was true.
MEM006 metric-kept-with-graph: no code of strangers is known in which it was true.
MEM007 average-kept-with-graph: no code of strangers is known in which it was true; the plain form is MEM001.
OLD004 distributed-launch: no code of strangers is known in which it was true.
PARAM006 weight-norm-after-optimizer: no code of strangers is known in which it was true; the plain form is PARAM005.
PARAM010 parameters-counted-twice: no code of strangers is known in which it was true.
PARAM012 self-normalising-net-spoiled: in code of strangers it was never clearly true (5 debatable).
PARAM033 slice-optimized: no code of strangers is known in which it was true.
PARAM034 parameter-held-twice: no code of strangers is known in which it was true.
PARAM036 groups-misspelt: no code of strangers is known in which it was true.
PARAM037 parameter-moved-before-registered: no code of strangers is known in which it was true.
PARAM039 switch-inverted: no code of strangers is known in which it was true.
PARAM040 option-left-out: in code of strangers it was never clearly true (1 debatable).
PARAM041 parameters-compared-with-themselves: no code of strangers is known in which it was true.
PARAM043 average-follows-at-once: no code of strangers is known in which it was true; the plain form is PARAM022.
PARAM044 parameters-given-twice: no code of strangers is known in which it was true; the plain form is LOSS015.
PARAM045 copy-follows-at-once: no code of strangers is known in which it was true; the plain form is PARAM022.
PARAM046 unfrozen-not-optimized: no code of strangers is known in which it was true.
SAVE007 tied-weights-untied: in code of strangers it was false more often than true (0 true, 1 false).
SAVE008 saved-in-every-micro-batch: in code of strangers it was false more often than true (0 true, 2 false).
SAVE009 restored-state-replaced: in code of strangers it was never clearly true (1 debatable).
SAVE010 state-left-out: no code of strangers is known in which it was true.
SAVE012 saved-value-stale: in code of strangers it was false more often than true (0 true, 1 false).
SAVE014 schedule-not-saved: in code of strangers it was false more often than true (1 true, 3 false).
SAVE015 own-weights-loaded: no code of strangers is known in which it was true; the plain form is SAVE002.
SAVE017 best-overwritten-by-last: no code of strangers is known in which it was true; the plain form is SAVE002.
SAVE018 one-optimizer-not-saved: no code of strangers is known in which it was true; the plain form is SAVE002.
SCHED003 plateau-without-metric: no code of strangers is known in which it was true; the plain form is SCHED002.
SCHED004 epochs-counted-per-batch: no code of strangers is known in which it was true; the plain form is SCHED010.
SCHED006 loop-over-number: in code of strangers it was false more often than true (0 true, 1 false).
SCHED007 schedule-of-idle-optimizer: SCHED001 says it.
SCHED013 length-of-other-unit: no code of strangers is known in which it was true; the plain form is SCHED010.
SCHED015 factor-taken-for-rate: no code of strangers is known in which it was true; the plain form is SCHED008.
SCHED016 plateau-of-growing-share: no code of strangers is known in which it was true; the plain form is SCHED002.
SEED001 generators-seeded-differently: no code of strangers is known in which it was true; the plain form is DEV003.
SEED004 numpy-unseeded: no code of strangers is known in which it was true.
VALUE002 loop-over-unused-items: no code of strangers is known in which it was true.
VALUE003 key-left-from-loop: no code of strangers is known in which it was true.
VALUE005 fixed-index-in-loop: in code of strangers it was false more often than true (0 true, 1 false).
VALUE006 branch-without-effect: in code of strangers it was never clearly true (3 debatable).
VALUE007 keywords-given-by-position: no code of strangers is known in which it was true.
VALUE008 guard-of-one-alternative: in code of strangers it was false more often than true (0 true, 3 false).
VALUE009 tested-for-another: no code of strangers is known in which it was true.
VALUE010 sibling-s-name-left: in code of strangers it was false more often than true (0 true, 10 false).
VALUE011 object-given-to-its-method: no code of strangers is known in which it was true.
VALUE015 list-asked-by-name: no code of strangers is known in which it was true.
VALUE016 divided-by-norm-of-relu: in code of strangers it was never clearly true (2 debatable).
VALUE018 loop-variable-rebound: in code of strangers it was false more often than true (1 true, 2 false).
VALUE020 best-set-to-another: no code of strangers is known in which it was true.
VALUE021 batch-of-other-loop: no code of strangers is known in which it was true.
VALUE022 mask-never-used: in code of strangers it was false more often than true (0 true, 1 false).
VALUE023 counter-never-counts: no code of strangers is known in which it was true; the plain form is PARAM022.
VALUE024 sum-that-cancels: in code of strangers it was never clearly true (1 debatable).
VALUE025 output-never-used: no code of strangers is known in which it was true; the plain form is PARAM016.
VALUE026 row-meets-column: no code of strangers is known in which it was true; the plain form is LOSS017.
VALUE027 part-joined-twice: no code of strangers is known in which it was true; the plain form is PARAM016.
VALUE033 shuffled-order-unused: no code of strangers is known in which it was true; the plain form is DATA001.
VALUE034 totals-always-equal: in code of strangers it was false more often than true (0 true, 5 false).
VALUE035 argument-of-other-quantity: no code of strangers is known in which it was true.
VALUE036 replaced-by-constant: no code of strangers is known in which it was true.
VALUE037 default-written-again: no code of strangers is known in which it was true.
VALUE038 length-of-dict: no code of strangers is known in which it was true; the plain form is DATA002.
VALUE039 truncation-thrown-away: in code of strangers it was false more often than true (1 true, 3 false).
VALUE042 span-without-its-end: no code of strangers is known in which it was true; the plain form is EVAL041.
VALUE043 argument-changed-in-place: no code of strangers is known in which it was true; the plain form is GRAD023.
"""


def _parsed(row: str) -> tuple[str, RetiredCheck]:
    heading, _, reason = row.partition(": ")
    code, _, name = heading.partition(" ")
    return code, RetiredCheck(name, reason)


RETIRED: dict[str, RetiredCheck] = dict(map(_parsed, _TABLE.splitlines()))


def retired_code(code_or_name: str) -> str | None:
    """Return the code of the retired check of a code (in whatever case) or a name; None if there is none."""
    wanted = code_or_name.upper()
    return next((code for code, check in RETIRED.items() if wanted in (code, check.name.upper())), None)


def retired_codes(beginning: str) -> list[str]:
    """Return the retired codes that begin so, or the one of this name."""
    named = retired_code(beginning)
    return [named] if named else [code for code in RETIRED if code.startswith(beginning.upper())]


def retired_line(code: str) -> str:
    """Return the line that says why a check went."""
    return f"{code} ({RETIRED[code].name}) is retired and passed over: {RETIRED[code].reason}"
