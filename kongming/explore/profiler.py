"""Adaptive profiling: suggest the next points to run, be told what was measured, predict the rest.

Paper 004, Algorithm 1. All decisions are functions of the settings, the seed and what was told so
far, so that a profiler that was saved and read goes on as if nothing had happened.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from kongming.arrays import Floats
from kongming.explore import settings
from kongming.explore.choice import FEWEST
from kongming.explore.cost import REPORTED, CostFunction, by_expression, learned, within_means
from kongming.explore.errors import ExploreError
from kongming.explore.features import Features
from kongming.explore.learners import LEARNERS, PAPER
from kongming.explore.modelling import Forecast, SpaceModel
from kongming.explore.outcomes import Outcomes
from kongming.explore.policies import POLICIES
from kongming.explore.pool import Pool
from kongming.explore.repeats import half, least_run
from kongming.explore.runs import VALUE, Measured, Run, bounds_of, coded, plain, rows, values_of
from kongming.explore.situation import Situation
from kongming.explore.space import Point, Space
from kongming.explore.stopping import enough, wanted_repeats
from kongming.explore.tree import ObliqueModelTree
from kongming.explore.tree.online_tree import OnlineTree
from kongming.files.sealed_document import DocumentKind, is_unicode
from kongming.records.errors import UntrainedError
from kongming.records.quantity import LARGEST

KIND = DocumentKind(
    "kongming-explore-profiler", 2, "profiler's document", "fit it again", "kongming explore fit"
)
WITHOUT_NAMED_BOUNDS = 1
"""The version that holds all else."""
FEWEST_RUNS = 2
"""The least budget: one run is no model."""
MODELS = ("auto", "paper", *LEARNERS)
_UNKNOWN_COSTS = 20
"""Runs of unknown cost that a budget of costs pays for while no cost above 0 is known."""
_FREE_RUNS = 1000
"""Runs of cost 0 that end a budget of costs on their own: it has to end in a space that does
not."""
_FEWEST_TO_STOP = 28
"""Runs below which nothing is 95% certain of 90% of the space."""


class DecisionTreeProfiler:
    """Chooses a few points of a space to run, and models all others (paper 004).

    Args:
        budget: runs in all; with ``budget_in="cost"`` the sum of their costs.
        batch: runs that are suggested at a time.
        policy: how points are chosen (``POLICIES``).
        model: the learner of the final model (``LEARNERS``); ``auto``: the best of them;
            ``paper``: the best of the paper's.
        weights: of error, size and cost in the score of a leaf.
        cost: an expression in the dimensions, ``told`` (learned from the costs told), or None:
            points are chosen as if all cost the same, but for the costs told of a leaf where
            ``weights`` counts them. A budget in costs counts what was told for a
            run, else the expression, else its value; while no cost above 0 is known, it pays for
            20 runs of unknown cost, and never for more than 1000 that cost 0.
        level: of the intervals.
        stop_pct: stop once 90% of the space is known within so many per cent; where the noise
            decides whether it is, half of a batch repeats points.
        random_state: a seed; None draws one.
        metric: which of several metrics of a run guides the choice; by default the first told.
            Runs that measured others only are welcome: ``report`` lists the ``metrics`` of all.
        split, criterion, iterations, rebuild: of the tree by which ``dta`` samples; without
            ``rebuild`` it grows online (C.3).
        draws: uniform draws in a leaf of which ``dta`` takes the one farthest from all runs; 1 is
            the paper's.
        repeats: once every allowed point was run, the rest of the budget repeats them, unless
            repeats were all alike; ``auto`` and ``stop_pct`` repeat points before that.

    Raises:
        ExploreError: a setting is not valid.
    """

    def __init__(
        self,
        space: Space,
        *,
        budget: float = 40,
        batch: int = 5,
        policy: str = "auto",
        model: str = "auto",
        weights: Sequence[float] | Floats = (1.0, 1.0, 0.0),
        cost: str | None = None,
        level: float = 0.9,
        stop_pct: float | None = None,
        random_state: int | None = 0,
        budget_in: str = "runs",
        metric: str | None = None,
        split: str = "oblique",
        criterion: str = "linear",
        iterations: int = 30,
        rebuild: bool = True,
        draws: int = 8,
        repeats: bool = False,
    ) -> None:
        if not isinstance(space, Space):
            raise ExploreError("is no Space.", field="space", value=repr(space))
        self.space = space
        self.budget_in = settings.one_of(budget_in, "budget_in", ("runs", "cost"))
        self.budget: float = (
            settings.integer(
                int(budget) if isinstance(budget, float) and budget.is_integer() else budget,
                "budget",
                FEWEST_RUNS,
            )
            if budget_in == "runs"
            else settings.within(budget, "budget", 0.0, open_=True)
        )
        self.batch = settings.integer(batch, "batch", 1)
        self.policy = settings.one_of(policy, "policy", POLICIES)
        self.model = settings.one_of(model, "model", MODELS)
        self._refuse_small_budget()
        self.weights = settings.three_weights(weights)
        if cost is not None and not isinstance(cost, str):
            raise ExploreError(
                "is not an expression.",
                field="cost",
                value=repr(cost),
                allowed="an expression, told",
            )
        self.cost = cost
        self._price = None if cost in (None, REPORTED) else by_expression(space, str(cost))
        self.level = settings.within(level, "level", 0.0, 1.0, open_=True)
        self.stop_pct = (
            None if stop_pct is None else settings.within(stop_pct, "stop_pct", 0.0, open_=True)
        )
        seed = secrets.randbelow(2**31) if random_state is None else random_state
        self.random_state = settings.integer(seed, "random_state", 0)
        if metric is not None and (
            not isinstance(metric, str) or not metric or not is_unicode(metric)
        ):
            raise ExploreError(
                "is not a name.", field="metric", value=repr(metric), allowed="a text, or None"
            )
        self.metric = metric
        self.split = settings.one_of(split, "split", ("oblique", "axis"))
        self.criterion = settings.one_of(criterion, "criterion", ("linear", "residual", "variance"))
        self.iterations = settings.integer(iterations, "iterations", 0)
        self.rebuild = settings.flag(rebuild, "rebuild")
        self.draws = settings.integer(draws, "draws", 1)
        self.repeats = settings.flag(repeats, "repeats")
        self._outcomes = Outcomes(len(space.names), metric)
        self._online = OnlineTree(self._new_tree, self._first_runs)
        self._points: Pool | None = None
        self._drawn = 0
        self._models: dict[str, SpaceModel] = {}
        self.stopped = False

    def _refuse_small_budget(self) -> None:
        """Lines would stand in for the model that was named, throughout."""
        needed = FEWEST.get(self.model, FEWEST_RUNS)
        if self.budget_in == "runs" and self.budget < needed:
            raise ExploreError(
                f"is too small for the model {self.model!r}.",
                field="budget",
                value=self.budget,
                allowed=f"{needed} or more",
                hint="Or let the kind of model be chosen (auto).",
            )

    # The loop

    def suggest(self, n: int | None = None) -> list[dict[str, Any]]:
        """The next points to run, ``batch`` or ``n`` of them; [] once the budget is spent, nothing
        is left to run, or the stop rule holds. Some were run before, where noise is to be known.

        Points that were suggested and not told yet are pending: they count, and are not repeated.

        Raises:
            ExploreError: the expression of the cost is not above 0 at some point of the space.
        """
        outcomes = self._outcomes
        count = self.batch if n is None else settings.integer(n, "n", 1)
        if self.budget_in == "runs":
            count = min(count, int(self.budget) - len(outcomes.known_codes))
        going_on = count >= 1 and not self.is_spent
        repeats = self._repeats_for_noise() if going_on else None
        if repeats is None:
            return []
        # Where all runs were suggested, as if they had been so by this very profiler.
        decisions = [self.random_state, len(outcomes.runs), len(outcomes.known_codes)]
        rng = np.random.default_rng(decisions)
        if self._pool().leave(count, outcomes.known_codes):
            # A model weighs its runs by the pool.
            self._models.clear()
        codes = self._affordable(self._situation(rng), count, repeats)
        outcomes.pending += [tuple(row) for row in codes.tolist()]
        return self.space.decode(codes)

    def resume_batch(self) -> list[dict[str, Any]]:
        """Suggest the batch again that the last runs told are of, if they and those before answer
        suggestions of a profiler as this one, and return what of it was not told yet, which is
        pending then; [] where they are the whole batch, or were chosen otherwise.

        Whoever was interrupted within a batch goes on as if it had not been. Batches are ``batch``
        runs each, but for those that the rest of a budget of costs shortened; nothing may be
        pending.

        Raises:
            ExploreError: as ``suggest``.
        """
        if self._outcomes.pending:
            return []
        # Before runs are taken back, without which a budget may be refused.
        self._pool()
        for begun in self._begins():
            if self._resume_from(begun):
                break
        return self.space.decode(rows(self._outcomes.pending, len(self.space.names)))

    def _begins(self) -> list[int]:
        """Return how many runs there may have been when the batch of the last ones began, the
        likeliest first."""
        runs = len(self._outcomes.runs)
        if self.budget_in == "runs":
            return [runs - runs % self.batch] if runs % self.batch else []
        # By then a batch may have been shortened: those after it begin anywhere.
        aligned = (runs - 1) // self.batch * self.batch
        nearby = range(max(runs - self.batch, 0), runs) if self._may_have_been_shortened() else ()
        return list(dict.fromkeys([aligned, *nearby])) if runs else []

    def _may_have_been_shortened(self) -> bool:
        """Return whether the budget may not have paid for the whole of the last batch."""
        costs = self._known_costs()
        if not costs:
            return True
        # Learned prices are within a factor of 2 of those known.
        price = self._price
        dearest = 2.0 * max(costs) if price is None else float(price(self._pool().codes).max())
        return self.left + sum(costs[-self.batch :]) < self.batch * dearest

    def _resume_from(self, begun: int) -> bool:
        """Suggest again what was suggested after the first ``begun`` runs; where the others answer
        that, the rest of it is pending. Return whether they do."""
        outcomes = self._outcomes
        runs, steps = outcomes.runs, list(self._online.steps)
        outcomes.runs = runs[:begun]
        self._models.clear()
        answered = False
        try:
            left = len(self.suggest()) - len(runs[begun:])
            for run in runs[begun:]:
                outcomes.add(run)
            answered = len(outcomes.pending) == left
        finally:
            # Nothing that was told is lost, also where the user interrupts.
            outcomes.runs = runs
            self._models.clear()
            if not answered:
                outcomes.pending.clear()
                self._online = OnlineTree(self._new_tree, self._first_runs)
                self._online.steps = steps
        return answered

    def tell(
        self,
        point: Point,
        value: float | Mapping[str, float] | None,
        *,
        error: str | None = None,
        cost: float | None = None,
        at_least: float | Mapping[str, float] | None = None,
    ) -> None:
        """Tell what a run measured: a value, or several by metric, or None and the ``error`` of a
        run that failed. ``at_least``: it was ended after so much of the guiding metric, or of each
        that is named, as ``{"seconds": 600.0}``. Of other metrics it failed; where one of them
        guides, points like it are avoided.

        Any order, points told before (repeats) and points never suggested are welcome.

        Raises:
            ExploreError: the point is not allowed, or value or cost are no finite number.
        """
        codes = tuple(self.space.encode([point])[0].tolist())
        values: dict[str, float] | None = None
        if value is not None:
            for field, other in (("error", error), ("at_least", at_least)):
                if other is not None:
                    raise ExploreError("was told together with a value.", field=field, value=other)
            measured = value if isinstance(value, Mapping) else {self._outcomes.guide: value}
            values = values_of(measured)
        elif error is None and at_least is None:
            error = "failed"
        if error is not None and not isinstance(error, str):
            raise ExploreError("is not text.", field="error", value=repr(error))
        run = Run(
            codes,
            values,
            # Bytes that were no text, as of a file's name, become "?": it has to be saved.
            None if error is None else error.encode("utf-8", "replace").decode(),
            None if cost is None else settings.within(cost, "cost", 0.0, LARGEST),
            None if at_least is None else bounds_of(at_least),
        )
        self._outcomes.add(run)
        self._models.clear()

    @property
    def points_left(self) -> int | None:
        """Allowed points that were neither run nor suggested; None where they cannot be counted."""
        if self.space.size is None:
            return None
        return self.space.size - self._outcomes.points

    @property
    def spent(self) -> float:
        """Return what was told, in the units of the budget."""
        runs = len(self._outcomes.runs)
        if self.budget_in == "runs":
            return runs
        costs = self._known_costs()
        # What is not known counts as what is; a budget has to end where nothing ever is.
        typical = sum(costs) / len(costs) if any(costs) else self.budget / _UNKNOWN_COSTS
        return sum(costs) + typical * (runs - len(costs))

    @property
    def left(self) -> float:
        """Return what is left of the budget for further runs, 0 where the last one took more. A run
        that cost nothing takes a thousandth of a budget of costs, and is not ``spent``."""
        if self.budget_in == "runs":
            return max(self.budget - self.spent, 0.0)
        left = self.budget * (1.0 - self.free_runs / _FREE_RUNS) - self.spent
        return left if left > self._rounding else 0.0

    @property
    def _rounding(self) -> float:
        """What sums of costs are not exact by, at most."""
        return 1e-9 * self.budget

    @property
    def free_runs(self) -> int:
        """Return how many runs cost nothing, of those that a budget of costs counts."""
        return 0 if self.budget_in == "runs" else self._known_costs().count(0.0)

    @property
    def is_spent(self) -> bool:
        """Return whether the runs took the budget: what is pending is to be left out then."""
        return self.left <= 0.0

    def _known_costs(self) -> list[float]:
        costs = (self._cost_of_run(run) for run in self._outcomes.runs)
        return [cost for cost in costs if cost is not None]

    def _repeats_for_noise(self) -> int | None:
        """Return how many of the next runs may repeat points, since noise decides whether the stop
        rule holds; None once it holds."""
        outcomes = self._outcomes
        if self.stop_pct is None or len(outcomes.runs) < _FEWEST_TO_STOP:
            return 0
        seen = self.observations
        if len(seen.means) < _FEWEST_TO_STOP or len(seen.repeatable) < FEWEST_RUNS:
            return 0
        certainties = self._fitted().certainties(self.stop_pct)
        self.stopped = enough(certainties)
        if self.stopped:
            return None
        awaited, again = outcomes.repeats(seen.codes)
        return wanted_repeats(certainties, seen.repeats, awaited, again, len(outcomes.known_codes))

    def _affordable(self, situation: Situation, count: int, repeats: int) -> Floats:
        """The points that are chosen and that the rest of a budget of costs pays for. Where it pays
        for none of them, those are chosen from that it does pay for."""
        codes = self._choice(situation, count, repeats)
        if self.budget_in == "runs" or not len(codes):
            return codes
        runs = len(self._outcomes.runs)
        # Points that are awaited count before the first answer as well: the budget has to end.
        taken = self.spent + self.budget * self.free_runs / _FREE_RUNS
        typical = taken / runs if runs else self.budget / _UNKNOWN_COSTS
        prices = self._costs() or (lambda points: np.full(len(points), typical))
        pending = rows(self._outcomes.pending, codes.shape[1])
        left = self.left - float(prices(pending).sum() if len(pending) else 0.0) + self._rounding
        paid = codes[within_means(prices(codes), left)]
        if len(paid):
            return paid
        pool = situation.pool[prices(situation.pool) <= left]
        if not len(pool):
            return paid
        # No other point may be chosen, as if these were all.
        situation = replace(situation, pool=pool, complete=True)
        codes = self._choice(situation, count, repeats=0)
        return codes[within_means(prices(codes), left)] if len(codes) else codes

    def _choice(self, situation: Situation, count: int, repeats: int) -> Floats:
        known, rng = self._outcomes.known_codes, situation.rng
        again = situation.again
        if repeats:
            again = least_run(self.observations, known, min(half(count, rng), repeats), rng)
            situation = replace(situation, again=again)
        if len(again) == count:
            return again
        codes = POLICIES[self.policy](situation, count - len(again))
        if self.repeats and not len(codes):
            return least_run(self.observations, known, count, rng)
        return np.concatenate([again, codes])

    # What policies see

    @property
    def observations(self) -> Measured:
        """The runs that measured the guiding metric, by point: those that ``tree_`` and the model
        are fitted to."""
        return self._outcomes.measured()

    def _situation(self, rng: np.random.Generator) -> Situation:
        runs = self.observations
        pool = self._pool()
        return Situation(
            space=self.space,
            pool=pool.codes,
            complete=pool.complete,
            runs=runs.codes,
            values=runs.means,
            counts=runs.counts,
            repeatable=runs.repeatable,
            succeeded=self._outcomes.succeeded(),
            failed=self._outcomes.failed(),
            failures=self._outcomes.failures_by_batch(self.batch),
            pending=self._outcomes.awaited(),
            again=runs.codes[:0],
            weights=self.weights,
            cost_of=self._costs() if self.cost is not None or self.weights[2] else None,
            budget_in_costs=self.budget_in == "cost",
            noise=runs.noise,
            budget=int(self.budget) if self.budget_in == "runs" else 10 * self.batch,
            rng=rng,
            seed=self.random_state,
            grow=self._grow,
            draws=self.draws,
        )

    def _pool(self) -> Pool:
        if self._points is None:
            points = Pool(self.space, self.random_state, self._drawn)
            if self._price is not None:
                # Before the first run: a campaign that meets such a point later could not go on.
                self._refuse_too_little(self._price(points.codes))
            self._points = points
        return self._points

    def _refuse_too_little(self, prices: Floats) -> None:
        """Raise ExploreError for a budget that does not pay for the runs that any model needs."""
        cheapest = float(np.sort(prices)[:FEWEST_RUNS].sum())
        little = self.budget < cheapest * (1.0 - 1e-9)
        if self.budget_in == "cost" and little and not self._outcomes.runs:
            raise ExploreError(
                f"does not pay for {FEWEST_RUNS} runs, which any model needs.",
                field="budget",
                value=f"{self.budget:.10g}",
                allowed=f"{cheapest:.10g} or more, what the cheapest of these points cost",
            )

    def _cost_of_run(self, run: Run) -> float | None:
        """Return what was told, else the expression, else the value; None where there is none of
        them."""
        if run.cost is not None:
            return run.cost
        if self._price is not None:
            return float(self._price(rows([run.codes], len(self.space.names)))[0])
        value = self._outcomes.guiding_value(run)
        return value if value is not None and value > 0.0 else None

    def _costs(self) -> CostFunction | None:
        """Return what points will cost, as far as that is known."""
        if self._price is not None:
            return self._price
        if self.budget_in == "runs":
            known = [run for run in self._outcomes.runs if run.cost is not None]
        else:
            known = [run for run in self._outcomes.runs if self._cost_of_run(run)]
        return learned(
            self.space,
            [run.codes for run in known],
            [self._cost_of_run(run) or 0.0 for run in known],
        )

    def _new_tree(self) -> ObliqueModelTree:
        return ObliqueModelTree(
            split=self.split,  # type: ignore[arg-type]
            criterion=self.criterion,  # type: ignore[arg-type]
            iterations=self.iterations,
            random_state=self.random_state % 2**32,
        )

    def _grow(self, X: Floats, y: Floats) -> ObliqueModelTree:
        """The policy's tree: of all runs afresh, or grown from that of the step before."""
        if self.rebuild:
            return self._new_tree().fit(X, y)
        return self._online.after(len(self._outcomes.runs))

    def _first_runs(self, count: int) -> tuple[Floats, Floats]:
        runs = self._outcomes.measured(first=count)
        return Features(self.space.dimensions)(runs.codes), runs.means

    # The model

    def predict(self, points: Iterable[Point], metric: str | None = None) -> Forecast:
        """Predictions of points, of the guiding metric or of another.

        Raises:
            ExploreError: a point is not allowed.
            UntrainedError: fewer than two points were measured: lower bounds are no values.
        """
        if not isinstance(points, Iterable) or isinstance(points, Mapping):
            raise ExploreError(
                "are no points.", field="points", value=repr(points), allowed="a list of dicts"
            )
        return self.predict_codes(self.space.encode(list(points)), metric)

    def predict_codes(self, codes: Floats, metric: str | None = None) -> Forecast:
        """Predict as ``predict`` does, for (n, d) codes of ``space.encode`` or ``space.pool``."""
        return self._fitted(metric).predict(codes)

    def _fitted(self, metric: str | None = None) -> SpaceModel:
        outcomes = self._outcomes
        name = outcomes.guide if metric is None else metric
        if name not in self._models:
            runs = self._trained(name)
            learners = {"auto": tuple(LEARNERS), "paper": PAPER}.get(self.model, (self.model,))
            self._models[name] = SpaceModel(
                self.space,
                self._pool().codes,
                runs,
                (outcomes.succeeded(name), outcomes.failed(name)),
                learners,
                self.level,
                self.random_state,
            )
        return self._models[name]

    def _trained(self, name: str) -> Measured:
        """Return the runs that measured a metric. Raises UntrainedError as ``predict``: by bounds
        alone, which are often all the same time limit, nothing is known of what they bound."""
        outcomes = self._outcomes
        runs = outcomes.measured(name)
        exact, ended = len(runs.repeatable), int(runs.censored.sum())
        if exact >= FEWEST_RUNS:
            return runs
        facts = [
            f"Runs: {len(outcomes.runs)}",
            f"points with a value{'' if name == VALUE else f' of {name!r}'}: {exact}",
            *([f"points with a lower bound alone: {ended}"] if ended else []),
            f"a model needs {FEWEST_RUNS} points with a value.",
        ]
        message = "; ".join(facts)
        if outcomes.metrics and name not in outcomes.metrics:
            # The name may be misspelt.
            message += f" Metrics of the runs: {', '.join(outcomes.metrics)}."
        if reasons := outcomes.errors():
            message += f" Runs failed: {'; '.join(reasons[:5])}."
        raise UntrainedError(
            message,
            hint="Raise the time limit, or run points that take less." if ended else None,
        )

    @property
    def model_name(self) -> str:
        """The learner of the final model. Raises UntrainedError as ``predict``."""
        return self._fitted().chosen.name

    @property
    def tree_(self) -> ObliqueModelTree:
        """A tree of all runs over the columns ``Features(space.dimensions)``. Raises
        UntrainedError as ``predict``, which is no AttributeError: ``hasattr`` raises it, too."""
        self._trained(self._outcomes.guide)
        situation = self._situation(np.random.default_rng(0))
        return self._new_tree().fit(situation.features(situation.runs), situation.values)

    def report(self) -> dict[str, Any]:
        """Facts about the runs and the model, as JSON: the error of runs that were left out, and
        the noise floor next to it. Where ``predict`` raises UntrainedError, ``model`` is None, and
        there is no error."""
        outcomes = self._outcomes
        failures = outcomes.failures()
        facts: dict[str, Any] = {
            "runs": len(outcomes.runs),
            "failed": int(failures.sum()),
            "timed_out": sum(
                run.at_least is not None
                for run, failed in zip(outcomes.runs, failures, strict=True)
                if not failed
            ),
            "pending": len(outcomes.pending),
            "budget": self.budget,
            "budget_in": self.budget_in,
            "spent": self.spent,
            "stopped": self.stopped,
            "policy": self.policy,
            "metric": outcomes.guide,
            "metrics": outcomes.metrics,
            "errors": outcomes.errors(),
        }
        if len(self.observations.repeatable) < FEWEST_RUNS:
            return facts | {"model": None}
        model = self._fitted()
        return facts | {
            "model": model.chosen.name,
            "log_target": model.chosen.log_target,
            "error": model.errors(),
            "importances": model.importances(),
        }

    # Documents

    def to_json(self) -> str:
        """The settings and all runs, as JSON text that ``from_json`` reads."""
        names = (
            *("budget", "batch", "policy", "model", "weights", "cost", "level", "stop_pct"),
            *("random_state", "budget_in", "metric", "split", "criterion", "iterations", "rebuild"),
            *("draws", "repeats"),
        )
        payload = {
            "space": self.space.to_dict(),
            "settings": {name: getattr(self, name) for name in names},
            "runs": [run.to_dict() for run in self._outcomes.runs],
            "pending": [plain(row) for row in self._outcomes.pending],
            # For versions before, which counted them.
            "suggested": len(self._outcomes.known_codes),
            "grown": self._online.steps,
            "stopped": self.stopped,
            "drawn": self._drawn if self._points is None else self._points.drawn,
        }
        named = any(run.bounds for run in self._outcomes.runs)
        version = None if named else WITHOUT_NAMED_BOUNDS
        # As it will be read: tuples are lists then, which the checksum has to agree with.
        return json.dumps(KIND.seal(json.loads(json.dumps(payload)), version), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote; the same answers then give the same suggestions.

        Raises:
            InputError: the text is no profiler or is damaged; ExploreError, a kind of it, if it is
                no JSON.
            IncompatibleError: a newer KONGMING wrote it (an InputError as well).
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError, TypeError) as error:
            raise ExploreError(f"The profiler's document is no JSON: {error}.") from error
        return KIND.read(document, cls._from_document)

    @classmethod
    def _from_document(cls, document: Mapping[str, Any]) -> Self:
        # What was begun before there was a choice goes on as it began.
        given = {"draws": 1} | document["settings"]
        profiler = cls(Space.from_document(document["space"]), **given | {"model": "auto"})
        # One that was saved may have been given a budget that is too small for its model.
        profiler.model = settings.one_of(given["model"], "model", MODELS)
        outcomes = profiler._outcomes
        outcomes.runs = [Run.from_dict(run) for run in document["runs"]]
        outcomes.pending = [coded(row) for row in document["pending"]]
        codes = rows(outcomes.known_codes, len(profiler.space.names))
        again = profiler.space.encode(profiler.space.decode(codes))
        if not np.array_equal(codes, again, equal_nan=True):
            raise ValueError("a run is not of this space")
        profiler._online.steps = [int(count) for count in document["grown"]]
        profiler.stopped = bool(document.get("stopped", False))
        profiler._drawn = int(document.get("drawn", 0))
        return profiler
