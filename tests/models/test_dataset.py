"""Runs become a dataset: what is kept, what is left out and why, what is refused."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest

from kongming.learning import columns, dataset
from kongming.learning.awake import awake_shares
from kongming.learning.validation import make_folds
from kongming.records import moments
from kongming.records.errors import IncompatibleError, InputError, UntrainedError
from kongming.records.run import APP_CPUS, APP_KIND, WAITING_SHARE, Run, Usage, waiting_share
from tests import builders
from tests.models import synthetic

POWERS = {"memory.random.128M": 0.6}


def with_times(run: Run, **changes: float | None) -> Run:
    """The run with some readings changed; None removes one."""
    assert run.fingerprint is not None
    surrogates = dict(run.fingerprint.surrogates)
    for name, value in changes.items():
        if value is None:
            del surrogates[name]
        else:
            good = surrogates.get(name, builders.reading(name, 1e-9))
            surrogates[name] = dataclasses.replace(good, seconds_per_op=value)
    fingerprint = dataclasses.replace(run.fingerprint, surrogates=surrogates)
    return dataclasses.replace(run, fingerprint=fingerprint, before=None)


def read_again(run: Run, factor: float) -> Run:
    """The run with a quick fingerprint after it whose readings are ``factor`` times the first."""
    assert run.before is not None
    times = {name: seconds * factor for name, seconds in run.before.times().items()}
    return dataclasses.replace(run, after=builders.fingerprint(times, suite="quick"))


def test_log_times_log_slowdowns_and_groups() -> None:
    runs = synthetic.campaign("a", POWERS)
    data = dataset.build(runs)
    assert data.columns == tuple(sorted(synthetic.IDLE))
    assert data.X.shape == (len(runs), len(synthetic.IDLE))
    first = runs[0]
    assert first.fingerprint is not None
    column = data.columns.index("stream.triad")
    assert data.times[0, column] == pytest.approx(first.fingerprint.times()["stream.triad"])
    solo = np.mean([math.log(run.cost) for run in runs if run.kind == "solo"])
    loaded = [i for i, run in enumerate(runs) if run.kind == "induced"]
    expected = [math.log(runs[i].cost) - solo for i in loaded]
    assert data.y[loaded] == pytest.approx(expected, abs=1e-3)
    assert np.median(data.y[[kind == "solo" for kind in data.kinds]]) == pytest.approx(0, abs=1e-2)
    assert data.groups == tuple(run.families for run in runs)
    assert dict(zip(data.columns, data.families, strict=True))["iobench.fsync"] == "write"


def test_a_program_as_a_load_is_a_family_of_its_own_and_its_signature_the_environment() -> None:
    runs = synthetic.campaign("a", POWERS)
    times = synthetic.environment({"memory": 0.4}, np.random.default_rng(3))
    signature = builders.fingerprint(times, passive={WAITING_SHARE: 0.25})
    quick = builders.fingerprint({name: 2.0 * times[name] for name in synthetic.QUICK})
    colocated = builders.run(
        "a",
        6.0,
        kind="induced",
        neighbours=("b",),
        fingerprint=signature,
        before=quick,
        after=quick,
        started_at=runs[0].started_at,
    )
    data = dataset.build([*runs, colocated])
    at = data.run_ids.index(colocated.id)
    assert (data.groups[at], data.inducers[at]) == (frozenset({"neighbour:b"}), ("b",))
    expected = [times[name] for name in data.columns]
    assert data.times[at] == pytest.approx(expected)
    assert np.exp(data.known[at]) == pytest.approx(expected)
    # It keeps a CPU awake while it does not wait.
    assert awake_shares([colocated, *runs])[0] == 0.75
    assert "neighbour:b" in {fold.name for fold in make_folds(data)}


def test_a_node_that_becomes_slower_slows_no_program() -> None:
    """Slowdowns are over the solo runs of the same minutes, as scores are."""
    runs = [
        dataclasses.replace(
            run,
            started_at=moments.format(1.8e9 + 600.0 * i),
            metric=run.metric and run.metric * math.exp(0.01 * i),
        )
        for i, run in enumerate(synthetic.campaign("a", {}, solos=12, noise=0.0))
    ]
    data = dataset.build(runs)
    costs = np.log([run.cost for run in runs])
    assert np.abs(data.y).mean() < 0.2 * np.abs(costs - np.median(costs)).mean()


def test_the_quick_suite_and_a_larger_one_are_put_on_one_scale() -> None:
    """Signatures are of the larger suite: a bias of the quick one must not look like a load."""
    runs = [
        dataclasses.replace(run, before=read_again(run, 0.8).after)
        for run in synthetic.campaign("a", POWERS)
    ]
    data = dataset.build(runs)
    larger = [run.fingerprint.times()["stream.triad"] for run in runs if run.fingerprint]
    column = data.columns.index("stream.triad")
    assert data.times[:, column] == pytest.approx(larger, rel=1e-3)
    assert data.suite_offset[column] == pytest.approx(math.log(1.25), abs=1e-3)
    quick = data.select(synthetic.QUICK).as_quick()
    column = quick.columns.index("stream.triad")
    assert quick.times[:, column] == pytest.approx(0.8 * np.array(larger), rel=1e-3)


def test_a_suite_offset_that_may_be_chance_is_hardly_taken_off() -> None:
    steady, scattered = [0.2, 0.2, 0.21, 0.19], [0.2, -0.9, 1.1, 0.3]
    assert columns.shrunk_median(steady) == pytest.approx(0.2, rel=0.01)
    assert 0.0 < columns.shrunk_median(scattered) < 0.1
    assert columns.shrunk_median([0.0, 0.0]) == 0.0


def test_the_order_of_runs_and_of_surrogates_changes_nothing() -> None:
    runs = synthetic.campaign("a", POWERS)
    shuffled = []
    for run in random.Random(3).sample(runs, len(runs)):
        assert run.fingerprint is not None
        turned = dict(reversed(list(run.fingerprint.surrogates.items())))
        fingerprint = dataclasses.replace(run.fingerprint, surrogates=turned)
        shuffled.append(dataclasses.replace(run, fingerprint=fingerprint))
    original, reordered = dataset.build(runs), dataset.build(shuffled)
    assert original.columns == reordered.columns
    assert original.run_ids == reordered.run_ids
    np.testing.assert_array_equal(original.X, reordered.X)
    np.testing.assert_array_equal(original.y, reordered.y)


def test_failed_repeated_and_unmeasured_runs_are_left_out_with_the_reason() -> None:
    runs = synthetic.campaign("a", POWERS)
    failed = builders.run("a", None, synthetic.IDLE)
    bare = builders.run("a", 3.0)
    data = dataset.build([*runs, failed, bare, runs[0]])
    reasons = {dropped.name: dropped.reason for dropped in data.dropped_runs}
    assert len(data.y) == len(runs)
    assert reasons == {
        failed.id: "failed: exit status 1",
        bare.id: "has no fingerprint",
        runs[0].id: "is a duplicate",
    }


def test_a_column_that_many_runs_miss_is_dropped_and_else_the_run() -> None:
    runs = synthetic.campaign("a", POWERS)
    runs = [with_times(r, **{"os.syscall": None}) if i % 2 else r for i, r in enumerate(runs)]
    runs[4] = with_times(runs[4], **{"stream.triad": None})
    data = dataset.build(runs)
    assert "os.syscall" not in data.columns
    assert "stream.triad" in data.columns
    assert [d.name for d in data.dropped_columns] == ["os.syscall"]
    assert [d.name for d in data.dropped_runs] == [runs[4].id]


def test_what_was_read_after_a_run_is_learned_from_but_was_not_known_before_it() -> None:
    runs = [read_again(run, 1.21) for run in synthetic.campaign("a", POWERS)]
    plain, data = dataset.build(runs, denoise=False), dataset.build(runs)
    quick = [name in synthetic.QUICK for name in data.columns]
    np.testing.assert_array_equal(data.known, plain.X)
    np.testing.assert_array_equal(plain.known, plain.X)
    between = np.where(quick, math.log(1.1), 0.0)
    np.testing.assert_allclose(data.X - data.known, np.tile(between, (len(runs), 1)), atol=1e-12)


def test_two_readings_around_each_run_tell_the_variance_of_a_reading() -> None:
    runs = [read_again(run, 1.1) for run in synthetic.campaign("a", POWERS)]
    data = dataset.build(runs)
    expected = math.log(1.1) ** 2 / 4.0
    j = data.columns.index("stream.triad")
    assert data.reading_variance[j] == pytest.approx(expected)
    assert dataset.build(runs, denoise=False).reading_variance[j] == pytest.approx(2.0 * expected)
    once = data.columns.index("compute.float")
    solo = [i for i, kind in enumerate(data.kinds) if kind == "solo"]
    assert data.reading_variance[once] == pytest.approx(np.var(data.X[solo, once], ddof=1))


def test_the_reading_that_is_nearer_to_the_run_counts() -> None:
    run, *others = synthetic.campaign("a", POWERS)
    nearer = builders.fingerprint({"stream.triad": 7e-9}, suite="quick")
    data = dataset.build([dataclasses.replace(run, before=nearer), *others])
    assert data.times[0, data.columns.index("stream.triad")] == pytest.approx(7e-9)


DEVICES = {"read", "write", "metadata"}


def using(cpus: float, **changes: Any) -> list[Run]:
    """The runs of a program that reads, which use so many CPUs' time."""
    runs = synthetic.campaign("a", {"iobench.read.4M": 0.7})
    return [
        dataclasses.replace(run, usage=Usage(cpu_s=cpus * run.wall_s), **changes) for run in runs
    ]


@pytest.mark.parametrize(
    ("runs", "share"),
    [
        (using(1.0), 0.0),
        (using(0.6), 0.4),
        (using(1.3), None),
        ([*using(0.9)[:8], *using(1.3)[8:]], None),
        (using(0.999, config={APP_KIND: "service"}), None),
        (using(0.99, config={APP_CPUS: 4}), None),
        (using(0.6, config={"kind": "service"}), 0.4),
        (synthetic.campaign("a", POWERS), None),
    ],
    ids=[
        "computes",
        "waits",
        "on several CPUs",
        "on several in some",
        "service",
        "of four CPUs",
        "a kind of environment",
        "not read",
    ],
)
def test_how_long_a_program_waits_is_known_of_a_single_cpu_alone(
    runs: list[Run], share: float | None
) -> None:
    assert waiting_share(runs) == (None if share is None else pytest.approx(share))


def test_a_program_on_several_cpus_may_wait_for_its_disk_all_the_same() -> None:
    """Two thirds of the time of each of four threads: 1.3 CPUs' time in all."""
    data = dataset.build(using(1.3))

    assert set(data.families) >= DEVICES
    assert not any("waits for no device" in dropped.reason for dropped in data.dropped_columns)
    assert not DEVICES & set(dataset.build(using(1.0)).families)


def test_a_constant_column_is_dropped() -> None:
    runs = [with_times(r, **{"stream.copy": 2e-9}) for r in synthetic.campaign("a", POWERS)]
    data = dataset.build(runs)
    assert {(d.name, d.reason) for d in data.dropped_columns} == {("stream.copy", "is constant")}


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("application", {"app": "b"}),
        ("identity", {"identity": "ffff"}),
        ("node", {"node_id": "node-2"}),
        ("placement", {"placement": "same-core"}),
        ("metric", {"metric_unit": "ops/s", "better": "higher"}),
        (
            "suite version",
            {"fingerprint": builders.fingerprint(synthetic.IDLE, suite_version="1-other")},
        ),
    ],
)
def test_runs_that_must_not_be_mixed_are_refused(what: str, changes: dict[str, object]) -> None:
    runs = synthetic.campaign("a", POWERS)
    runs[1] = dataclasses.replace(runs[1], **changes)  # type: ignore[arg-type]
    with pytest.raises(IncompatibleError, match=f"differ in {what}"):
        dataset.build(runs)


def test_without_solo_runs_or_any_run_there_is_no_dataset() -> None:
    runs = [run for run in synthetic.campaign("a", POWERS) if run.kind != "solo"]
    with pytest.raises(UntrainedError, match="solo"):
        dataset.build(runs)
    with pytest.raises(UntrainedError, match="no run"):
        dataset.build([])


def test_one_run_teaches_nothing() -> None:
    with pytest.raises(UntrainedError, match="No surrogate varied"):
        dataset.build([builders.run("a", 3.0, synthetic.IDLE)])


def test_columns_can_be_chosen() -> None:
    runs = synthetic.campaign("a", POWERS)
    data = dataset.build(runs, columns=["stream.triad", "os.switch", "no.such"])
    assert data.columns == ("os.switch", "stream.triad")
    assert [(d.name, d.reason) for d in data.dropped_columns] == [("no.such", "was not measured")]
    selected = dataset.build(runs).select(["os.switch", "stream.triad"])
    np.testing.assert_array_equal(selected.X, data.X)


def test_the_quick_columns_are_those_of_the_runs_quick_fingerprints() -> None:
    runs = synthetic.campaign("a", POWERS)
    assert columns.quick_columns(runs) == tuple(sorted(synthetic.QUICK))


def test_more_is_worse_whatever_the_metric() -> None:
    runs = synthetic.campaign("a", POWERS)
    turned = [
        dataclasses.replace(run, metric=1.0 / run.cost, metric_unit="ops/s", better="higher")
        for run in runs
    ]
    np.testing.assert_allclose(dataset.build(turned).y, dataset.build(runs).y)


def test_a_row_names_what_it_lacks() -> None:
    with pytest.raises(InputError, match=r"no reading of stream\.triad"):
        columns.row(["os.switch", "stream.triad"], {"os.switch": 1e-6})
    with pytest.raises(InputError, match="not a valid time"):
        columns.row(["os.switch"], {"os.switch": math.nan})
