# SPDX-License-Identifier: Apache-2.0
"""Checks that were taken out: what still names one is passed over, with one line that says why it went."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class RetiredCheck:
    """A check that was taken out; its code and its name are never used again."""

    name: str
    reason: str


# code and name of those that went for one reason; behind some stands the check that has the plain form
_BY_REASON = {
    "no code of strangers is known in which it was true": """
AMP002 backward-inside-autocast, AMP008 momentum-of-skipped-step, AMP009 fused-sgd-in-half, AMP011 unscaled-in-every-micro-batch,
AMP012 backward-unscaled, DATA007 batches-stacked, DATA009 fractions-truncated, DATA012 variance-by-difference,
DATA031 hidden-state-viewed, DEV004 gpu-indices-cut, DIST002 loader-without-sampler, DIST003 all-ranks-on-first-device,
DIST007 unused-parameters-searched, DIST010 rank-thrown-away, DIST011 group-not-destroyed, DIST012 port-fixed,
EVAL034 accuracy-impossible, EVAL035 best-never-beaten, EVAL037 mode-against-metric, EVAL038 monitored-never-logged,
EVAL040 patience-never-reset, GRAD014 gradient-alias-zeroed, GRAD015 gradient-rows-shared, GRAD042 step-larger-than-weights,
GRAD044 backward-for-a-penalty, GRAD048 optimizer-never-stepped, GRAD053 penalty-norm-over-batch,
GRAD054 penalty-mixed-by-one-weight, GRAD055 penalty-through-batch-norm, GRAD059 advantage-with-gradient,
LOSS031 squared-error-of-probabilities, LOSS032 labels-pick-columns, LOSS034 sum-added-to-mean, LOSS038 compared-with-itself,
LOSS040 probabilities-in-critic-loss, LOSS041 divergence-turned-round, LOSS042 scores-pushed-alike, LOSS044 ratio-upside-down,
LOSS045 deviation-without-half, LOSS046 target-given-to-model, LOSS047 margin-on-wrong-side, LOSS048 signal-without-root,
LOSS049 logits-not-shifted, LOSS053 divergence-over-batch, LOSS054 itself-among-negatives, LOSS055 variance-of-other-logarithm,
LOSS058 offsets-by-other-size, MEM005 step-outputs-kept, MEM006 metric-kept-with-graph, OLD004 distributed-launch,
PARAM010 parameters-counted-twice, PARAM033 slice-optimized, PARAM034 parameter-held-twice, PARAM036 groups-misspelt,
PARAM037 parameter-moved-before-registered, PARAM039 switch-inverted, PARAM041 parameters-compared-with-themselves,
PARAM046 unfrozen-not-optimized, SAVE010 state-left-out, SCHED005 schedule-used-up,
SEED004 numpy-unseeded, VALUE002 loop-over-unused-items,
VALUE003 key-left-from-loop, VALUE007 keywords-given-by-position, VALUE009 tested-for-another,
VALUE011 object-given-to-its-method, VALUE015 list-asked-by-name, VALUE020 best-set-to-another, VALUE021 batch-of-other-loop,
VALUE035 argument-of-other-quantity, VALUE036 replaced-by-constant, VALUE037 default-written-again
""",
    "no code of strangers is known in which it was true; the plain form is {plain}": """
AMP010 scaler-switched-by-other-word AMP007, DATA004 workers-seeded-alike DATA003, DATA021 inputs-all-alike DATA041,
DATA022 recurrence-over-batch DATA015, DATA035 same-order-every-epoch DATA001, DATA037 padding-mask-inverted LOSS026,
DATA042 padding-seen-alone LOSS026, DEV007 trained-on-host DEV005, DEV008 benchmark-with-varying-shapes DEV003,
DIST014 layer-unused-under-ddp DIST005, EVAL005 gradients-switched-on-inside EVAL004, EVAL006 dropout-unscaled EVAL001,
EVAL007 dropout-rate-as-keep-rate EVAL001, EVAL010 trained-in-evaluation-mode EVAL003, EVAL014 method-not-called EVAL002,
EVAL016 no-grad-without-with EVAL004, EVAL018 means-divided-by-examples DATA002,
EVAL044 evaluation-inputs-vary DATA019, EVAL045 evaluation-scaled-differently DATA017, EVAL046 nearest-is-itself EVAL041,
EVAL047 first-batch-evaluated DATA002, EVAL048 figure-of-wrong-mean DATA002, EVAL049 eval-on-one-way-only EVAL002,
EVAL050 mode-alike-on-both-ways EVAL002, EVAL051 best-by-wrong-direction SAVE002, GRAD017 value-changed-behind-autograd GRAD022,
GRAD018 gradient-clamped-by-hand GRAD008, GRAD028 critic-stepped-on-generator-loss GRAD020,
GRAD047 cleared-before-last-backward GRAD004, GRAD049 term-without-gradient GRAD022, GRAD051 training-step-gives-nothing GRAD007,
GRAD052 training-step-without-graph GRAD007, GRAD056 accumulated-loss-divided-twice GRAD005,
GRAD057 loss-never-trained-on GRAD022, GRAD058 term-of-choices GRAD022, GRAD060 stepped-without-a-way GRAD020,
GRAD061 clipped-in-every-micro-batch GRAD008, GRAD062 step-test-never-holds GRAD007, GRAD064 stepped-twice GRAD007,
GRAD065 latent-drawn-without-gradient GRAD022, LOSS018 only-one-class LOSS023, LOSS033 likelihood-made-small GRAD030,
LOSS051 divergence-made-large GRAD030, LOSS052 padding-trained-on LOSS026, LOSS056 overlap-made-small GRAD030,
LOSS057 softmax-before-split DATA015, MEM004 losses-kept-alive MEM001, MEM007 average-kept-with-graph MEM001,
PARAM006 weight-norm-after-optimizer PARAM005, PARAM013 relu-born-dead PARAM018,
PARAM043 average-follows-at-once PARAM022, PARAM044 parameters-given-twice PARAM015,
PARAM045 copy-follows-at-once PARAM022, REL001 order-of-examples-matters REL002, REL005 item-fits-any-example REL002,
REL010 figure-is-random EVAL002, SAVE015 own-weights-loaded SAVE002, SAVE017 best-overwritten-by-last SAVE002,
SAVE018 one-optimizer-not-saved SAVE002, SCHED003 plateau-without-metric SCHED002, SCHED004 epochs-counted-per-batch SCHED010,
SCHED013 length-of-other-unit SCHED010, SCHED011 stepped-in-every-micro-batch SCHED010,
SCHED015 factor-taken-for-rate SCHED008, SCHED016 plateau-of-growing-share SCHED002,
SEED001 generators-seeded-differently DEV003, VALUE023 counter-never-counts PARAM022, VALUE025 output-never-used PARAM016,
VALUE026 row-meets-column LOSS017, VALUE027 part-joined-twice PARAM016, VALUE033 shuffled-order-unused DATA001,
VALUE038 length-of-dict DATA002, VALUE042 span-without-its-end EVAL041, VALUE043 argument-changed-in-place GRAD023
""",
    "{plain} says it": """
DATA034 input-as-target DATA033, DATA038 transform-of-whole-set DATA019, EVAL030 comparison-broadcast LOSS017, EVAL031
largest-of-one-output LOSS023, EVAL036 full-batches-assumed EVAL043, GRAD002 zero-grad-between-backward-and-step GRAD004, GRAD009
clip-before-backward GRAD008, GRAD026 gradients-explode GRAD025, GRAD027 penalty-mixed-by-fixed-rank GRAD040, LOSS006
softmax-without-dim LOSS007, LOSS020 every-target-ignored LOSS019, OLD002 apex OLD001, OLD003 default-tensor-type OLD001, OLD006
old-weight-norm OLD001, OLD011 old-reduction OLD001, SAVE004 foreign-code-loaded SAVE001, SCHED007 schedule-of-idle-optimizer
SCHED001, SCHED014 warm-up-never-ends SCHED010
""",
    "in code of strangers it was false more often than true": """
DATA010 sequence-axes-exchanged, DATA036 listings-paired-unsorted, DATA043 pair-augmented-apart, DIST008 mean-of-means, DIST013
sync-batch-norm-uneven, EVAL015 training-flag-set, EVAL032 total-left-undivided, GRAD029 clip-of-other-parameters, GRAD043
penalty-without-graph, GRAD050 foreign-gradients-kept, LOSS009 one-hot-without-classes, LOSS016 loss-unbound, LOSS043
hinge-one-sided, PARAM003 parameter-tensor-not-registered, SAVE007 tied-weights-untied, SAVE008 saved-in-every-micro-batch,
SAVE012 saved-value-stale, SAVE014 schedule-not-saved, SCHED006 loop-over-number, SEED005 seeded-in-every-epoch, VALUE005
fixed-index-in-loop, VALUE008 guard-of-one-alternative, VALUE010 sibling-s-name-left, VALUE018 loop-variable-rebound, VALUE022
mask-never-used, VALUE034 totals-always-equal, VALUE039 truncation-thrown-away
""",
    "in code of strangers it was never clearly true": """
DATA039 mask-weighs-as-zero, DIST016 saved-by-every-rank, LOSS025 criterion-left-on-host, LOSS037 target-carries-gradient, LOSS039
divergence-of-raw-values, MEM002 outputs-kept-with-graph, PARAM012 self-normalising-net-spoiled, PARAM040 option-left-out, SAVE009
restored-state-replaced, VALUE006 branch-without-effect, VALUE016 divided-by-norm-of-relu, VALUE024 sum-that-cancels
""",
    "on trial it met no code of strangers": """
DATA044 transition-shared, GRAD068 part-taken-for-batch, LOSS061 value-past-the-end
""",
    "torch raises there": """
AMP003 scaler-never-updated, AMP004 unscaled-twice, AMP005 autocast-without-device, AMP006 half-type-in-numpy,
DATA008 double-precision-from-numpy, DATA011 lengths-unsorted, GRAD019 tensor-zero-grad, GRAD021 closure-missing,
DIST006 layer-drop-under-ddp,
LOSS004 float-class-indices, LOSS005 class-weights-of-wrong-type, LOSS008 integer-targets-in-bce,
LOSS013 unreduced-loss-in-backward, EVAL017 gradients-left-off
""",
}
# code, name and reason, in a row each
_TABLE = """\
DATA032 split-drawn-again: DATA040 says it when it runs (by reading 2 were true, 2 false).
EVAL012 evaluation-not-repeatable: strangers draw in eval mode on purpose; EVAL001 and PARAM031 say what is a mistake.
DEV002 variable-name-unquoted: undefined names are VALUE041.
EVAL013 total-never-reset: EVAL039 says it of a total; of a meter it was never true (2 false).
GRAD041 trained-tensor-detached: GRAD024 says it when it runs (by reading 1 was true, 4 false).
LOSS015 criterion-not-optimized: in code of strangers it was never true (2 false); PARAM015 says it when it runs.
PARAM032 recurrent-dropout-idle: torch warns there.
SCHED009 batches-taken-for-updates: in code of strangers it was false as often as true (1 and 1).
VALUE004 same-value-twice: in code of strangers it was false as often as true (2 and 2; 6 debatable).
"""


def _parse_row(row: str) -> tuple[str, RetiredCheck]:
    heading, _, reason = row.partition(": ")
    code, _, name = heading.partition(" ")
    return code, RetiredCheck(name, reason)


def _checks_with_reason(reason: str, listed: str) -> Iterator[tuple[str, RetiredCheck]]:
    for each in listed.replace("\n", " ").split(", "):
        code, name, *plain = each.split()
        yield code, RetiredCheck(name, f"{reason.format(plain=''.join(plain))}.")


_ROWS = [
    *map(_parse_row, _TABLE.splitlines()),
    *(row for reason, listed in _BY_REASON.items() for row in _checks_with_reason(reason, listed)),
]
RETIRED: dict[str, RetiredCheck] = dict(sorted(_ROWS, key=lambda row: row[0]))


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
