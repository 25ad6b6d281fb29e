# SPDX-License-Identifier: Apache-2.0
"""The experiments of one run: finds the places, has the relations tried there, and keeps what came out."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from truestep.core.random_streams import (
    preserve_host_rng,
    preserve_torch_rng,
)
from truestep.doctor.check import Check
from truestep.doctor.experiments.budget import ExperimentBudget
from truestep.doctor.experiments.child_continuation import ChildGoesOn, outcome_of_child
from truestep.doctor.experiments.criterion_options import user_criteria
from truestep.doctor.experiments.epoch_experiment import EpochExperiment, epoch_plan
from truestep.doctor.experiments.evaluation_experiment import EvaluationExperiment, evaluation_plan
from truestep.doctor.experiments.fork_points import TrainingProgress, num_prefetched_batches
from truestep.doctor.experiments.in_memory_batch import MemoryBatchChild, batch_in_memory
from truestep.doctor.experiments.in_process_child import end_child_with_script
from truestep.doctor.experiments.in_step_batch import DataUseChild, batch_at_use
from truestep.doctor.experiments.load_replay import examples_handed_over
from truestep.doctor.experiments.schedule_state_reload import StateExperiment
from truestep.doctor.experiments.skip_reasons import (
    ExperimentNotTriedError,
    RelationNotApplicableError,
    StepsOfOthersError,
)
from truestep.doctor.experiments.step_child import StepPlan
from truestep.doctor.experiments.step_experiment import StepExperiment, demand_own_steps
from truestep.doctor.finding import Place
from truestep.doctor.forks.fork_obstacles import why_no_fork
from truestep.doctor.relations.examples import Examples, UnclearExamplesError, find_examples
from truestep.doctor.relations.relation import BrokenRelation, ExperimentRelation, StepRelation
from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory
from truestep.doctor.runtime.tensor_queries import watched_sensitive_layers
from truestep.doctor.runtime.user_code_line import watched_user_place
from truestep.doctor.watcher_base import Observation

RelationOutcome = Literal["held", "broken", "not tried", "not applicable"]
Experiment = StepExperiment | EvaluationExperiment | EpochExperiment | StateExperiment
# why a relation does not apply, where no such place came
_NO_PLACE = {
    "evaluation": "no evaluation over a loader began after a step",
    "epoch": "no second pass over training data began with a loader's first batch",
    "state": "no optimizer made a fourth step",
}


@dataclass
class RelationRecord:
    """What came of one relation in a run."""

    held: int = 0  # at so many places
    broken: list[BrokenRelation] = field(default_factory=list)
    not_tried: str | None = None  # why, where it was tried nowhere
    not_applicable: str | None = None  # why there is nothing that it speaks of
    told_nothing: str | None = None  # why a place told nothing, where no other one says more

    @property
    def is_known(self) -> bool:
        """Whether it held or was broken at some place."""
        return bool(self.held or self.broken)

    @property
    def outcome(self) -> RelationOutcome:
        """Return what came of it; what does not apply at one place and was not tried at another counts as not tried."""
        if self.is_known:
            return "broken" if self.broken else "held"
        return "not applicable" if self.not_applicable and not self.not_tried else "not tried"


class Experiments:
    """Has relations tried in children of a running script.

    Args:
        history: of the run.
        relations: those that are wanted.
        found: takes what is broken.
        failed: takes what broke in a relation's own code.
    """

    def __init__(
        self,
        history: WatchHistory,
        relations: Sequence[ExperimentRelation],
        found: Callable[[Check, Observation], None],
        failed: Callable[[Check, Exception], None],
    ) -> None:
        self.course = TrainingProgress()
        self.budget = ExperimentBudget()
        self.records = {each.code: RelationRecord() for each in relations}
        self._history = history
        self._relations = sorted(relations, key=lambda each: each.num_children)
        self._found, self._failed = found, failed
        self._known_here: set[str] = set()  # of this training, without regard to its batch
        self._batch: dict[str, Any] = {}  # of a plan, where no loader hands it over

    @property
    def seconds(self) -> float:
        """How long the children took."""
        return self.budget.seconds

    def batch_to_hand_over(self, iterator: Any, batch: Any) -> Any:
        """Return a loader's batch; in a child that is forked here, the one that it goes on with."""
        if not self._relations:
            return batch
        try:
            if self.course.note_batch_handed_over(iterator, are_models_resting=self._are_models_resting):
                self._try_relations_at("step", lambda: self._step_experiment(iterator, batch))
            if self.course.begins_epoch(iterator):
                self._try_relations_at("epoch", lambda: self._epoch_experiment(iterator, batch))
            if self.course.begins_evaluation(iterator, are_models_resting=self._are_models_resting):
                self._try_relations_at("evaluation", lambda: self._evaluation_experiment(iterator))
        except ChildGoesOn as child:
            return child.batch
        return batch

    def stepped(self, record: OptimizerRecord) -> None:
        """An optimizer has stepped; in a child that is forked here the script goes on."""
        num_stepping, is_only_one = (
            len(self._history.stepped_optimizers()),
            len(self._active_optimizers()) == 1,
        )
        if self.course.stepped(record.optimizer, num_stepping, is_only_one=is_only_one):
            self._known_here.clear()
        if not self._relations:
            return
        try:
            if self.course.has_steps_without_loader():
                self.course.note_memory_look()
                self._try_relations_at("step", self._memory_experiment, self._find_batch_tensors)
            elif self.course.can_fork_at_step():
                self.course.note_step_fork()
                self._try_relations_at("state", self._state_experiment)
                if not self._known_here:
                    self._try_relations_at("step alone", self._step_alone_experiment)
        except ChildGoesOn:
            self._relations = []

    def _are_models_resting(self) -> bool:
        models = self._history.models
        return bool(models) and not any(each.training for each in models)

    def _try_relations_at(
        self, kind: str, begin: Callable[[], Experiment], look: Callable[[], None] | None = None
    ) -> None:
        tried_at = [each for each in self._relations if each.tried_at == kind]
        wanted = self._relations_without_batch() if kind == "step alone" else tried_at
        self.budget.reset_child_count()
        try:
            if (obstacle := why_no_fork()) is not None:
                raise ExperimentNotTriedError(obstacle)
            if look is not None:
                look()
            # what is asked of the script's objects may draw; the script's streams go on as without
            with preserve_torch_rng(), preserve_host_rng():
                experiment = begin()
            if isinstance(experiment, StepExperiment):
                demand_own_steps(experiment)
        except (ExperimentNotTriedError, UnclearExamplesError) as why:
            # steps without a loader may come beside others, whose reasons say more
            is_told = look is None and not isinstance(why, StepsOfOthersError)
            for each in wanted:
                self._record_not_tried(each, why, is_told=is_told)
            return
        except Exception as error:  # noqa: BLE001 - what we look at must not stop the user's training
            for each in wanted:
                self._give_up_relation(each, error)
            return
        for each in wanted:
            if self._is_tried_in(each, experiment):
                self._try_relation(each, experiment)

    def _is_tried_in(self, relation: ExperimentRelation, experiment: Experiment) -> bool:
        """Tell whether a relation is tried here; what needs no batch waits where the step makes its own."""
        is_made = isinstance(experiment, StepExperiment) and experiment.plan.at_use is not None
        return not (is_made and relation in self._relations_without_batch())

    def _try_relation(self, relation: ExperimentRelation, experiment: Experiment) -> None:
        process, came = os.getpid(), self.records[relation.code]
        try:
            broken = list(relation.try_out(experiment))
        except ExperimentNotTriedError as why:
            self._record_not_tried(relation, why)
            return
        except Exception as error:  # noqa: BLE001 - a relation of ours must not stop the user's training
            if os.getpid() != process:
                end_child_with_script(error)
            self._give_up_relation(relation, error)
            return
        if isinstance(relation, StepRelation) and not relation.needs_batch:
            self._known_here.add(relation.code)
        came.held += not broken
        came.broken += broken
        for each in broken:
            self._report_broken(relation, each, experiment.place)

    def _give_up_relation(self, relation: ExperimentRelation, error: Exception) -> None:
        self._failed(relation, error)
        self._relations.remove(relation)

    def _report_broken(self, relation: ExperimentRelation, broken: BrokenRelation, place: Place) -> None:
        self._found(
            relation, Observation(broken.place or place, broken.message, broken.severity, broken.evidence)
        )

    def _record_not_tried(
        self, relation: ExperimentRelation, why: Exception, *, is_told: bool = True
    ) -> None:
        came = self.records[relation.code]
        if not is_told:
            came.told_nothing = str(why)
        elif isinstance(why, RelationNotApplicableError):
            came.not_applicable = came.not_applicable or str(why)
        else:
            came.not_tried = came.not_tried or str(why)

    def _step_experiment(self, iterator: Any, batch: Any) -> StepExperiment:
        return self._make_step_experiment(
            iterator, examples_handed_over(iterator, batch), batches_ahead=num_prefetched_batches()
        )

    def _find_batch_tensors(self) -> None:
        """Fork children that tell which tensors the next step is for: what lies in memory, or else what the step makes."""
        optimizers = [each.optimizer for each in self._active_optimizers()]
        trained = list(_parameters_by_name(self._history, optimizers).values())
        size = 4 * sum(each.nbytes for each in trained)
        if len(optimizers) == 1:
            seen = outcome_of_child(self.budget, size, lambda going_on: MemoryBatchChild(going_on, trained))
            if (batch := batch_in_memory(seen)) is not None:
                self._batch = {"examples": find_examples(batch), "in_memory": batch}
                return
        turn = self.course.turn or 1
        seen = outcome_of_child(self.budget, size, lambda going_on: DataUseChild(going_on, trained, turn))
        made, examples = batch_at_use(seen)
        self._batch = {"examples": examples, "at_use": made}

    def _memory_experiment(self) -> StepExperiment:
        return self._make_step_experiment(None, **self._batch)

    def _relations_without_batch(self) -> list[ExperimentRelation]:
        """Return the relations of a step that its batch need not be known for."""
        return [each for each in self._relations if isinstance(each, StepRelation) and not each.needs_batch]

    def _active_optimizers(self) -> list[OptimizerRecord]:
        """Return the optimizers that have stepped and may step again: those of a training that is over are left out."""
        known = self._history.stepped_optimizers()
        return [each for each in known if not each.is_left] or known

    def _step_alone_experiment(self) -> StepExperiment:
        """Return an experiment with the next steps, whatever their batch is."""
        return StepExperiment(
            self._make_step_plan(None, Examples(None, 1, {}, {})), watched_user_place(), self.budget
        )

    def _make_step_experiment(self, iterator: Any, examples: Examples, **more: Any) -> StepExperiment:
        plan = self._make_step_plan(iterator, examples, **more)
        if plan.examples.count < 2:
            raise RelationNotApplicableError("the batch holds a single example")
        place = Place.of_text(plan.at_use.place) if plan.at_use is not None else None
        return StepExperiment(plan, place or watched_user_place(), self.budget)

    def _make_step_plan(self, iterator: Any, examples: Examples, **more: Any) -> StepPlan:
        optimizers = [each.optimizer for each in self._active_optimizers()]
        has_batch = bool(examples.leaves)
        turn = self.course.turn or 1  # where no batch tells it
        num_steps = max(1, self.course.num_steps if iterator is not None else turn)
        return StepPlan(
            iterator,
            examples,
            _parameters_by_name(self._history, optimizers),
            optimizers,
            num_steps,
            _layers_by_name(self._history),
            steps_together=self.course.have_all_stepped_lately(optimizers, num_steps),
            criteria=user_criteria(self._history.models, self._history.names),
            has_batch=has_batch,
            **more,
        )

    def _epoch_experiment(self, iterator: Any, batch: Any) -> EpochExperiment:
        plan = epoch_plan(iterator, batch)
        size = 4 * sum(each.nbytes for model in self._history.models for each in model.parameters())
        return EpochExperiment(
            plan, watched_user_place(), self.budget, len(iterator._dataset), self.course.window, size
        )

    def _evaluation_experiment(self, iterator: Any) -> EvaluationExperiment:
        models = self._history.models
        active = sorted({kind for each in models for kind in watched_sensitive_layers(each, training=True)})
        size = 2 * sum(each.nbytes for model in models for each in model.parameters())
        return EvaluationExperiment(
            evaluation_plan(iterator), watched_user_place(), self.budget, active, size
        )

    def _state_experiment(self) -> StateExperiment:
        optimizers = [each.optimizer for each in self._active_optimizers()]
        made = {id(schedule): place for schedule, place in self._history.schedules}
        return StateExperiment(optimizers, made, watched_user_place(), self.budget)

    def outcome(self, code: str) -> tuple[RelationOutcome, str | None]:
        """Return what came of a relation, and why where it was not tried."""
        record = self.records[code]
        if record.is_known:
            return record.outcome, None
        relation = next((each for each in self._relations if each.code == code), None)
        criteria = user_criteria(self._history.models, self._history.names)
        if relation is not None and (why := relation.why_not_applicable(criteria)):
            return "not applicable", why
        if (why := record.not_tried or record.not_applicable) is not None:
            return record.outcome, why
        if relation is not None and relation.tried_at in _NO_PLACE:
            return "not applicable", _NO_PLACE[relation.tried_at]
        return "not tried", (
            self.course.has_passed_over_batches and self.course.why_not
        ) or record.told_nothing or self.course.why_not

    def why_not_tried(self, code: str) -> str:
        """Return why a relation was tried nowhere."""
        return self.outcome(code)[1] or ""


def _parameters_by_name(history: WatchHistory, optimizers: Sequence[Any]) -> dict[str, Any]:
    """Return what the optimizers hold, by name where a model that was applied has it."""
    named: dict[int, str] = {}
    for model in history.models:
        own = history.names.get(id(model)) or type(model).__name__
        for name, each in model.named_parameters():
            named.setdefault(id(each), f"{own}.{name}")
    held = [each for one in optimizers for group in one.param_groups for each in group["params"]]
    found: dict[str, Any] = {}
    for number, each in enumerate({id(each): each for each in held}.values()):
        name = named.get(id(each), f"parameter {number} of shape {tuple(each.shape)}")
        found[f"{name} ({number})" if name in found else name] = each  # models of one class, without names
    return found


def _layers_by_name(history: WatchHistory) -> dict[str, Any]:
    """Return all modules of all models that were applied, each once; of names that two models have, the later says whose it is."""
    found: dict[str, Any] = {}
    known: set[int] = set()
    for model in history.models:
        own = history.names.get(id(model)) or type(model).__name__
        for name, module in model.named_modules():
            if id(module) not in known:
                known.add(id(module))
                told = f"{own}.{name}" if name in found else name
                found[f"{told} ({len(found)})" if told in found else told] = module
    return found
