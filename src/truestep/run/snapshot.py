# SPDX-License-Identifier: Apache-2.0
"""Everything a checkpoint holds of a run, put together and taken apart."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from truestep.checkpoints.tensor_selection import PartOf
from truestep.core.errors import CheckpointError, DataError, OptionError, names_hint
from truestep.engine.data.rank_data_check import refuse_differing_places
from truestep.engine.parts import LearnerParts
from truestep.engine.processes.shards import pieces_on_this_rank
from truestep.engine.sharded_state import learner_parts_here
from truestep.engine.state import (
    changed_learner_settings,
    changed_optimizer_options,
    check_learner_state,
    keep_buffers,
    learner_state,
    load_learner_state,
    use_given_optimizer_options,
)
from truestep.engine.update_keys import UpdateKeys
from truestep.report.metrics_rollback import MetricsPrefixMark
from truestep.run.directory import START_ANEW, changed_settings_error
from truestep.run.fingerprint import run_fingerprint
from truestep.run.loop_random import loop_random_state
from truestep.run.rank_consistency import (
    are_run_weights_finite,
    check_extra_states_equal,
    check_switches_equal_on_ranks,
    check_tracked_equal_on_ranks,
    check_weights_equal_on_ranks,
    extra_state_marks,
    learner_switches_of_run,
    run_optimizer_options,
    run_weight_sums,
    tracked_state_marks,
)
from truestep.run.rank_read_check import read_places_by_label
from truestep.run.settings_without_secrets import cursor_state_without_secrets, learner_state_without_secrets
from truestep.run.state import RunState
from truestep.run.user_state import (
    check_run_state,
    decode_run_state,
    encode_run_state,
    refuse_differing_run_states,
    run_state_digests,
)


class TakenRunState(NamedTuple):
    """The run's state, of rank 0 a whole one, and whether the weights of all ranks are finite."""

    state: dict[str, Any]
    healthy: bool


def take_run_state(run: RunState) -> TakenRunState:
    """Return the run's state as a tree of tensors and plain values.

    Divided tensors are on each rank the piece that it has.
    """
    check_run_state(run.user)
    tracked, own = run.tracked.divided(run.tracked.state())
    state = {
        "learners": {
            name: pieces_on_this_rank(kept, alone=not run.is_main)
            if run.context.learners[name].weights.are_divided
            else kept
            for name, kept in _learner_states(run)
        },
        "updates": _random_keys_of_updates(run),
        "cursor": cursor_state_without_secrets(run.cursor.state_dict(), run.secrets),
        "random": loop_random_state(run.context.device),
        "random_at_epoch": run.random.at_epoch,
        "logbook": run.logbook.state_dict(),
        "best": run.best,
        "user": encode_run_state(run.user),
        "tracked": tracked,
        "environment": run_fingerprint(run.context.device, run.secrets.hash),
    }
    if run.is_main:
        run.secrets.keep()
    state["ranks"], healthy = _gather_rank_states(run, shared=tracked, own=own)
    return TakenRunState(state, healthy)


def _random_keys_of_updates(run: RunState) -> dict[str, dict[str, int]]:
    """Return what the random numbers of each learner's next update are keyed by, beside the step."""
    learners = run.context.learners.items()
    return {name: {"place": each.keys.place, "count": each.keys.count} for name, each in learners}


def _restore_random_keys_of_updates(run: RunState, saved: dict[str, dict[str, int]] | None) -> None:
    """Put them back; learners of one place count together, as all do in a run begun before there were places."""
    made: dict[int, UpdateKeys] = {}
    for name, learner in run.context.learners.items():
        at = {"place": 0, "count": 0} if saved is None else saved[name]
        learner.keys = made.setdefault(at["place"], UpdateKeys(run.context.seed, name=name, **at))


def _learner_states(run: RunState) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, learner in run.context.learners.items():
        yield name, learner_state_without_secrets(learner_state(learner), run.secrets)


def state_parts_needed_here(run: RunState) -> PartOf:
    """Return what says which part of a tensor in a checkpoint this process needs: that of the weights which it has."""
    learners = run.context.learners.items()
    parts = [
        learner_parts_here(learner, "learners", name)
        for name, learner in learners
        if learner.weights.are_divided
    ]
    return lambda name, shape: next(filter(None, (part_of(name, shape) for part_of in parts)), None)


def _gather_rank_states(
    run: RunState, *, shared: dict[str, Any], own: dict[str, Any]
) -> tuple[list[dict[str, Any]], bool]:
    """Return what each process has of its own, nothing where one has nothing, and whether all weights are finite.

    Their weights must be the same, those of which each has a part excepted.
    """
    context = run.context
    mine = {
        "random": loop_random_state(context.device),
        "random_at_epoch": run.random.at_epoch,
        "tracked": own,
        "streams": own_stream_states(run),
    }
    if context.world is None:
        return [mine] if own else [], are_run_weights_finite(context)
    _refuse_different_rank_states(run, shared)
    finite = context.world.meet("a checkpoint", are_run_weights_finite(context))
    return run.agreement.gather_trees_on_rank_0("a checkpoint", mine), all(each for (each,) in finite)


def _refuse_different_rank_states(run: RunState, tracked: dict[str, Any]) -> None:
    """Raise where a rank has other weights, switches, places in the data, values or tracked states than another."""
    facts = {
        "sums": run_weight_sums(run.context),
        "switches": learner_switches_of_run(run.context) | run_optimizer_options(run.context.learners),
        "read": {name: [*place] for name, place in read_places_by_label(run.cursor).items()},
        "user": run_state_digests(run.user),
        "tracked": tracked_state_marks(tracked),
        "extra": extra_state_marks(run.context),
    }
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    if len(set(run.agreement.gathered("a checkpoint", digest))) == 1:
        return
    # Only then do the facts travel, which grow with the number of tensors.
    everybody = run.agreement.gathered("a checkpoint", facts)
    check_switches_equal_on_ranks([each["switches"] for each in everybody])
    # behind what makes them differ
    check_weights_equal_on_ranks(run.context, [each["sums"] for each in everybody])
    refuse_differing_places([each["read"] for each in everybody])
    refuse_differing_run_states([each["user"] for each in everybody])
    check_tracked_equal_on_ranks([each["tracked"] for each in everybody])
    check_extra_states_equal([each["extra"] for each in everybody])


def tracked_states(run: RunState, state: dict[str, Any]) -> dict[str, Any]:
    """Return the states of tracked objects that are this process's, of all and its own.

    Raises a CheckpointError where some are kept per rank, and there were more ranks, or fewer.
    """
    shared: dict[str, Any] = dict(state.get("tracked", {}))
    ranks = state.get("ranks", [])
    own = [each.get("tracked", {}) for each in ranks]
    if not any(own) and not run.tracked.per_rank:
        return shared
    own = own if any(own) else [{}] * run.world_size
    if len(own) != run.world_size:
        raise CheckpointError(
            f"The checkpoint holds {', '.join(map(repr, own[0]))} of {len(own)} ranks (run.track(per_rank=True)), and here are "
            f"{run.world_size}: nobody knows which state would be whose. Go on with {len(own)} processes. {START_ANEW}"
        )
    saved: dict[str, Any] = shared | own[run.rank]
    if changed := sorted(own[run.rank].keys() ^ (run.tracked.per_rank & saved.keys())):
        was, now = (
            ("one for each rank", "one for all")
            if changed[0] in own[run.rank]
            else ("one for all", "one for each rank")
        )
        raise CheckpointError(
            f"The state of {changed[0]!r} in the checkpoint is {was}, and run.track(per_rank=...) says now that it is {now}. "
            f"Track it as before. {START_ANEW}"
        )
    return saved


def restore_run(run: RunState, state: dict[str, Any], marks: Sequence[MetricsPrefixMark]) -> list[str]:
    """Bring a run to where `state` was taken; `check_edits_since_run_start` says first whether it fits.

    `marks` say which lines of metrics the checkpoints need that are there. Returns which settings of learners differ.
    """
    differences: list[str] = []
    edited = run.resume_as == "edited"
    run.cursor.load_state_dict(cursor_state_of_rank(run, state))
    # A run that `run.finish()` has ended is taken up again by resume="edited".
    run.cursor.finished = run.cursor.finished and not edited
    for name, saved in state["learners"].items():
        learner = run.context.learners[name]
        changed = changed_learner_settings(learner, saved)
        differences += [f"{name}: {run.secrets.hide_secrets_in_text(text)}" for text in changed]
        load_learner_state(learner, saved)
        learner.switches.load(saved.get("settings", {}))
        if edited:
            use_given_optimizer_options(learner, saved)
    run.context.advance(run.cursor.step)
    _restore_random_keys_of_updates(run, state.get("updates"))
    run.logbook.load_state_dict(state["logbook"], marks)
    run.best = state["best"]
    run.random.restore(**_random_state_of_rank(run, state))
    repeats = run.random.repeats
    kept = {"user": state["user"], "tracked": tracked_states(run, state)}
    _restore_user_state(run, kept, copy=repeats)
    if repeats:
        # what the loop repeats may be an evaluation by a model that carries a state
        buffers = [keep_buffers(run.context.learners[name]) for name in state["learners"]]
        run.random.at_the_save = partial(_restore_all, [partial(_restore_user_state, run, kept), *buffers])
    return differences


def _random_state_of_rank(run: RunState, state: dict[str, Any]) -> dict[str, Any]:
    """Return where this process's generators stood; of another number of processes, where the first one's did."""
    ranks = state.get("ranks", [])
    own = ranks[run.rank] if len(ranks) == run.world_size else state
    return {"saved": own["random"], "at_epoch": own["random_at_epoch"]}


def _restore_all(each_part: Sequence[Callable[[], None]]) -> None:
    for put_back in each_part:
        put_back()


def _restore_user_state(run: RunState, state: dict[str, Any], *, copy: bool = False) -> None:
    """Put back what the user keeps with the run; with `copy`, so that it can be put back once more."""
    run.user.clear()
    run.user.update(decode_run_state(state["user"], copy=copy))
    run.tracked.load(state["tracked"], copy=copy)


def check_edits_since_run_start(run: RunState, state: dict[str, Any]) -> list[str]:
    """Return what the code gives otherwise than the run was started with; raise where that was not asked for, or can't be."""
    tracked = tracked_states(run, state)
    cursor = cursor_state_of_rank(run, state)
    _check_learner_names(run, state["learners"])
    run.tracked.check(tracked)
    found: list[str] = []
    for kind, edits in (
        (DataError, run.cursor.streams.changes(cursor["streams"])),
        (CheckpointError, run.tracked.differences(tracked)),
        (OptionError, _changed_optimizer_option_texts(run, state["learners"])),
    ):
        edits = [run.secrets.hide_secrets_in_text(edit) for edit in edits]
        if edits and run.resume_as != "edited":
            raise changed_settings_error(kind, edits, run.directory)
        found += edits
    return found


def _changed_optimizer_option_texts(run: RunState, saved: dict[str, Any]) -> list[str]:
    changed = {
        name: changed_optimizer_options(run.context.learners[name], state) for name, state in saved.items()
    }
    return [f"{name}: {'; '.join(options)}." for name, options in changed.items() if options]


def _learners_hint(name: str, saved: Collection[str], learners: Mapping[str, LearnerParts]) -> str:
    """Return the nearest names of the learners that a run has, or what to call where it has none: it was made anew, say."""
    by_class = [each for each in learners if each == type(learners[each].module).__name__.lower()]
    if len(saved) == len(learners) == len(by_class) == 1:
        return (
            f"It makes {by_class[0]!r}, called so by the class of its module. For the same model in another class write "
            f"run.learner(net, optimizer, name={name!r}); another model is another run."
        )
    if learners:
        return names_hint(name, learners)
    return "It has no learner yet: call run.learner(...) of this run before its loop, in a notebook by running that cell again."


def _check_learner_names(run: RunState, saved: dict[str, Any]) -> None:
    learners = run.context.learners
    for name in saved:
        if name not in learners:
            raise CheckpointError(
                f"The checkpoint holds the learner {name!r}, which this run does not make. {_learners_hint(name, saved, learners)} "
                f"{START_ANEW}"
            )
    for name, learner in learners.items():
        if name not in saved:
            raise CheckpointError(
                f"The learner {name!r} is not in the checkpoint, so it would start afresh. {names_hint(name, saved)} "
                f"{START_ANEW}"
            )
        check_learner_state(learner, saved[name])


def own_stream_states(run: RunState) -> dict[str, Any]:
    """Return where this rank stands in each stream of its own."""
    streams = run.cursor.streams.items()
    return {name: each.source.state_dict() for name, each in streams if each.source.is_per_rank}


def cursor_state_of_rank(run: RunState, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cursor of a checkpoint with this rank's own places in place of rank 0's.

    Raises a CheckpointError where there were more ranks, or fewer, or a stream was not divided as it is now.
    """
    cursor: dict[str, Any] = dict(state["cursor"])
    _refuse_other_number_of_shares(run, cursor["streams"])
    ranks = state.get("ranks", [])
    own = ranks[run.rank].get("streams", {}) if len(ranks) == run.world_size else {}
    cursor["streams"] = {
        name: {**saved, "source": own[name]} if name in own else saved
        for name, saved in cursor["streams"].items()
    }
    return cursor


def _refuse_other_number_of_shares(run: RunState, saved: Mapping[str, Any]) -> None:
    for name, stream in saved.items():
        before, label = _num_shares(stream["fingerprint"]), stream.get("label", name)
        if before and before != run.world_size:
            raise CheckpointError(
                f"The checkpoint holds the places of {before} ranks in {label!r} (run.data(..., per_rank=True)), and here are "
                f"{run.world_size}: how its files would be shared out now nobody knows, so samples would come twice and others "
                f"never. Go on with {before} processes. {START_ANEW}"
            )
        here = run.cursor.streams.get(name)
        if here is not None and bool(before) != bool(_num_shares(here.source.fingerprint())):
            was, now = ("", "not ") if before else ("not ", "")
            raise CheckpointError(
                f"{label!r} was {was}read with per_rank=True when the run was saved, and is {now}now: the places in it don't fit. "
                f"Write run.data as before. {START_ANEW}"
            )


def _num_shares(fingerprint: Mapping[str, Any]) -> int:
    number: int = fingerprint.get("ranks", 0) if fingerprint.get("kind") == "stream" else 0
    return number
