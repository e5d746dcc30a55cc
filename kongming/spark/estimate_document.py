"""The estimates of one application as JSON types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kongming.spark.estimation import Estimate, Estimator, Price
from kongming.spark.model.driver import driver_time, job_end
from kongming.spark.model.groups import job_groups
from kongming.spark.model.intervals import factor
from kongming.spark.model.workload import Workload
from kongming.spark.recommendation import by_deadline, recommend


def document(
    estimator: Estimator,
    estimates: Sequence[Estimate],
    *,
    price_per_hour: Price = 1.0,
    by_execution: bool = False,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the whole answer as JSON types; costs without a price are executor-hours."""
    application, workload = estimator.workload.application, estimator.workload
    chosen = recommend(estimates, price_per_hour)
    return {
        "application": {
            "id": application.id,
            "name": application.name,
            "spark_version": application.spark_version,
            "complete": application.complete,
            "measured_s": workload.measured_s,
            "executors": workload.cluster.executors,
            "cores": workload.cluster.cores,
        },
        "driver_s": driver_time(application).total_s,
        "critical_path_s": estimator.critical_path_s(),
        "self_check": {
            "replayed_s": estimator.replayed_s(),
            "error_pct": 100.0 * estimator.unexplained,
        },
        "estimates": [
            {
                "executors": each.executors,
                "cores": each.cores,
                "runtime_s": each.runtime_s,
                "baselines": each.baselines,
                "corrections": each.corrections,
                "machine_s": each.machine_s,
                "cost": each.cost(price_per_hour),
                "utilisation": each.utilisation,
                "extrapolating": each.extrapolating,
                "reasons": [*each.reasons],
            }
            for each in estimates
        ],
        "recommendation": {
            name: {
                "executors": each.executors,
                "cores": each.cores,
                "runtime_s": each.median_s,
                "cost": each.cost(price_per_hour),
            }
            for name, each in (
                ("cheapest", chosen.cheapest),
                ("fastest", chosen.fastest),
                ("knee", chosen.knee),
            )
        },
        "executions": _execution_documents(workload, estimates) if by_execution else [],
        "warnings": list(warnings),
    }


def deadline_document(
    estimates: Sequence[Estimate], deadline_s: float, risk: float
) -> dict[str, Any]:
    """Return what keeps the deadline as JSON types."""
    best, likeliest = by_deadline(estimates, deadline_s, risk)

    def size(estimate: Estimate) -> dict[str, Any]:
        return {
            "executors": estimate.executors,
            "cores": estimate.cores,
            "probability": estimate.probability(deadline_s),
            "reasons": [*estimate.reasons],
        }

    return {
        "seconds": deadline_s,
        "risk": risk,
        "meets": None if best is None else size(best),
        "likeliest": size(likeliest),
    }


def _execution_documents(workload: Workload, estimates: Sequence[Estimate]) -> list[dict[str, Any]]:
    application = workload.application
    named = {each.id: each.description for each in application.executions}
    jobs = [work.job for work in workload.jobs]
    documents = []
    groups = [group for group in job_groups(jobs) if group.execution is not None]
    for number, group in enumerate(groups):
        end = max(job_end(jobs[place], application) for place in group.jobs)
        begin = min(jobs[place].submitted_s for place in group.jobs)
        documents.append(
            {
                "id": group.execution,
                "description": named.get(group.execution or 0, ""),
                "measured_s": end - begin,
                "estimates": [
                    {
                        "executors": each.executors,
                        "cores": each.cores,
                        "runtime_s": _scaled(each, each.executions[number].median_s),
                    }
                    for each in estimates
                ],
            }
        )
    return documents


def _scaled(estimate: Estimate, median: float) -> dict[str, float]:
    wide = factor(estimate.deviation, estimate.level)
    return {
        "median": median,
        "lower": median / wide,
        "upper": median * wide,
        "level": estimate.level,
    }
