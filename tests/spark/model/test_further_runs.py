"""Further runs of an application next to the run of the log itself."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kongming.records.errors import InputError
from kongming.spark.application import Application, Rdd
from kongming.spark.estimation import Estimator, Size
from kongming.spark.history import learn_growth, learn_residual
from kongming.spark.model.corrections.input_growth import learn_input_growth
from kongming.spark.model.workload import Workload, workload_of
from kongming.spark.reading import read_all
from tests.conftest import Kongming
from tests.spark.event_logs import write
from tests.spark.programs import Part, Program, Stage, run

PROGRAM = Program((Part((Stage((3.0,) * 48), Stage((2.0,) * 24, (0,)))),))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(run(PROGRAM, 4), tmp_path_factory.mktemp("logs") / "app-1")


def runtimes(kongming: Kongming, log: Path, *args: str | Path) -> dict[int, dict[str, float]]:
    done = kongming("spark", "estimate", log, "--executors", "1,2,4,8,16", *args, "--json")
    assert done.returncode == 0, done.stderr
    estimates: list[dict[str, Any]] = json.loads(done.stdout)["estimates"]
    return {each["executors"]: each["runtime_s"] for each in estimates}


def _table(path: Path, seconds: dict[int, float]) -> Path:
    rows = "".join(f"{executors},{each}\n" for executors, each in seconds.items())
    path.write_text(f"executors,seconds\n{rows}")
    return path


def test_the_interval_holds_what_the_log_itself_measured(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    """Both other sizes were a quarter faster than predicted; the log's own was as it was."""
    plain = runtimes(kongming, log)
    faster = {count: 0.75 * plain[count]["median"] for count in (1, 8)}
    after = runtimes(kongming, log, "--runs", _table(tmp_path / "runs.csv", faster))
    measured = run(PROGRAM, 4).ended_s
    assert measured is not None
    assert after[4]["lower"] < measured < after[4]["upper"]
    assert after[4]["median"] < plain[4]["median"]


def test_a_run_counts_once_however_often_its_log_is_given(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    """The folder of all runs, LOG's own among them, is no more than the other run."""
    other = write(run(PROGRAM, 8), tmp_path / "other")
    shutil.copy(log, tmp_path / "own")
    alone = runtimes(kongming, log, "--runs", other)
    assert alone == runtimes(kongming, log, "--runs", tmp_path, "--runs", other)
    assert len(read_all([tmp_path, other, log])) == 2
    done = kongming("spark", "estimate", log, "--runs", log)
    assert done.returncode == 2
    assert "holds no run but that of LOG" in done.stderr


def test_a_table_counts_once_however_often_it_is_given(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    table = _table(tmp_path / "runs.csv", {8: 30.0})
    link = tmp_path / "link.csv"
    link.symlink_to(table)
    alone = runtimes(kongming, log, "--runs", table)
    assert alone == runtimes(kongming, log, "--runs", table, "--runs", table, "--runs", link)
    # Its rows are runs of their own, also where they are alike.
    table.write_text("executors,seconds\n8,30\n8,30\n")
    assert alone != runtimes(kongming, log, "--runs", table)


@pytest.mark.parametrize(("times", "refused"), [(1000.0, True), (0.05, True), (6.0, False)])
def test_a_run_in_another_unit_is_a_reason(
    kongming: Kongming, log: Path, tmp_path: Path, times: float, refused: bool
) -> None:
    measured = times * runtimes(kongming, log)[8]["median"]
    table = _table(tmp_path / "runs.csv", {8: measured})
    command = ("spark", "estimate", log, "--executors", "4,8", "--runs", table)
    done = kongming(*command, "--json")
    assert done.returncode == 0, done.stderr
    reasons = [
        reason for each in json.loads(done.stdout)["estimates"] for reason in each["reasons"]
    ]
    assert reasons == 2 * refused * [f"a further run took {times:g} times as long as its replay"]
    assert kongming(*command, "--strict").returncode == 3 * refused


def test_a_single_run_that_differs_widens_the_interval(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    plain = runtimes(kongming, log)
    slower = {8: 2.0 * plain[8]["median"]}
    after = runtimes(kongming, log, "--runs", _table(tmp_path / "runs.csv", slower))
    for count, before in plain.items():
        wide = before["upper"] / before["lower"]
        assert after[count]["upper"] / after[count]["lower"] > wide
    assert plain[8]["median"] < after[8]["median"] < slower[8]


def test_runs_narrow_the_interval_between_them_more_than_beyond(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    plain = runtimes(kongming, log)
    same = {count: plain[count]["median"] for count in (1, 2, 8)}
    after = runtimes(kongming, log, "--runs", _table(tmp_path / "runs.csv", same))

    def width(runtime: dict[str, float]) -> float:
        return runtime["upper"] / runtime["lower"]

    assert width(after[1]) < width(plain[1])
    assert width(after[2]) < width(plain[2])
    assert width(after[2]) < width(after[16])


def test_runs_far_from_the_recorded_size_teach_under_strict_too(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    """A run of eight times the recorded slots, which --strict refuses to estimate."""
    plain = runtimes(kongming, log)
    table = _table(tmp_path / "runs.csv", {32: 4.0 * plain[16]["median"]})
    strict = runtimes(kongming, log, "--runs", table, "--strict")
    assert strict == runtimes(kongming, log, "--runs", table)
    assert strict[16]["median"] > plain[16]["median"]
    refused = kongming("spark", "estimate", log, "--executors", "32", "--runs", table, "--strict")
    assert refused.returncode == 3


def test_a_residual_of_equal_runs_leaves_nothing() -> None:
    residual = learn_residual(np.array([0.0, 1.0]), np.zeros(2))
    assert (residual.level, residual.slope, residual.deviation) == (0.0, 0.0, 0.0)
    assert residual.furthest == (0.0, 1.0)
    more = residual.adding(-2.0, 0.3)
    assert more.furthest == (-2.0, 1.0)
    assert 0.0 < more.at(-2.0) < 0.3
    assert more.beyond(0.5) == 0.0
    assert more.beyond(-3.0) == pytest.approx(1.0)


def test_the_run_of_a_sample_is_none_of_the_full_input() -> None:
    """Runs of all data were half as slow again as the samples tell, of which neither is one."""
    small, large = (run(Program((Part((Stage((seconds,) * 48),)),)), 4) for seconds in (3.0, 6.0))
    inputs = learn_input_growth(workload_of(small), 0.1, workload_of(large), 0.2, 1.0)
    estimator = Estimator(small, inputs=inputs)
    sizes = [Size(count) for count in (2, 4, 8)]
    before = [estimator.estimate(size) for size in sizes]
    estimator.residual = learn_residual(np.array([0.0, 1.0]), np.full(2, np.log(1.5)))
    after = [estimator.estimate(size) for size in sizes]
    assert estimator.residual.observations == ((0.0, np.log(1.5)), (1.0, np.log(1.5)))
    for old, new in zip(before[1:], after[1:], strict=True):
        assert 1.4 * old.median_s < new.median_s < 1.5 * old.median_s
        assert new.lower_s < 1.5 * old.median_s < new.upper_s
        assert new.deviation < old.deviation
    # Fewer executors than either run had.
    assert after[0].deviation > after[1].deviation


def _scans(*stages: tuple[int, float]) -> Workload:
    """A query that reads tables, each a job of its own: the tasks and the seconds of each."""
    rdds = (Rdd(0, "FileScanRDD", 1),)
    parts = (
        Part((Stage((seconds,) * tasks, rdds=rdds),), after=(), execution=0)
        for tasks, seconds in stages
    )
    return workload_of(run(Program(tuple(parts)), 4))


def test_samples_are_compared_by_stage_in_whatever_order_a_query_read_its_tables() -> None:
    """Adaptive execution submits both at the same time. One has the same length in both samples,
    the other is twice as long in the larger one."""
    small = _scans((16, 1.0), (4, 3.0))
    for larger in (_scans((16, 2.0), (4, 3.0)), _scans((4, 3.0), (16, 2.0))):
        inputs = learn_input_growth(small, 0.1, larger, 0.2, 1.0)
        assert inputs.kinds == ("linear", "constant")
        assert inputs.factors.tolist() == pytest.approx([10.0, 1.0])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_stage_that_grows_faster_than_n_log_n_is_followed(swapped: bool) -> None:
    """A join of a table with itself: 10 s at a tenth, 40 s at a fifth, 1000 s for all data."""
    samples = [(_scans((16, 0.625)), 0.1), (_scans((16, 2.5)), 0.2)]
    if swapped:
        samples.reverse()
    recorded_s = 40.0 if swapped else 10.0
    for ratio, seconds in ((0.1, 10.0), (0.2, 40.0), (0.4, 160.0), (1.0, 1000.0)):
        inputs = learn_input_growth(*samples[0], *samples[1], ratio)
        assert inputs.factors * recorded_s == pytest.approx([seconds])
        expected = ["1 stage grew faster than n log n between the samples"] * (ratio > 0.2)
        assert [reason.partition(":")[0] for reason in inputs.reasons] == expected
    estimator = Estimator(samples[0][0].application, inputs=inputs)
    assert inputs.reasons[0] in estimator.estimate(Size(4)).reasons


def test_what_is_steeper_than_all_pairs_is_not_followed_beyond_the_samples() -> None:
    """Eight times as long with twice the input: a limit was met, rather than a power."""
    inputs = learn_input_growth(_scans((8, 1.0)), 0.1, _scans((8, 8.0)), 0.2, 1.0)
    assert inputs.factors.tolist() == pytest.approx([8.0 * 5.0**2])
    assert "to the power of 3, and is extrapolated with 2" in inputs.reasons[0]


def test_what_repeats_differ_by_is_no_growth() -> None:
    """A single task may take twice as long by chance, and a stage of little weight is no reason."""
    single = learn_input_growth(_scans((1, 1.0)), 0.1, _scans((1, 4.0)), 0.2, 1.0)
    assert single.kinds == ("n log n",)
    small, larger = (_scans((16, 0.001 * times), (8, 30.0)) for times in (1.0, 4.0))
    light = learn_input_growth(small, 0.1, larger, 0.2, 1.0)
    assert light.kinds == ("faster than n log n", "constant")
    assert light.reasons == single.reasons == ()


def _one_job(*stages: tuple[int, float]) -> Workload:
    """One RDD job that reads a table several times."""
    rdds = (Rdd(0, "FileScanRDD", 1),)
    each = tuple(Stage((seconds,) * tasks, rdds=rdds) for tasks, seconds in stages)
    return workload_of(run(Program((Part(each),)), 4))


@pytest.mark.parametrize(
    ("small", "larger"),
    [
        (_scans((3, 4.0), (4, 3.0)), _scans((6, 2.0), (4, 6.0))),
        (_one_job((3, 4.0), (4, 3.0)), _one_job((6, 2.0), (4, 6.0))),
        (_one_job((3, 4.0), (6, 1.0)), _one_job((6, 2.0), (3, 4.0))),
    ],
)
def test_samples_are_compared_in_their_order_where_it_may_be_right(
    small: Workload, larger: Workload
) -> None:
    """The first stage takes as long in both samples, the second twice as long."""
    inputs = learn_input_growth(small, 0.1, larger, 0.2, 1.0)
    assert inputs.kinds == ("constant", "linear")
    assert inputs.factors.tolist() == pytest.approx([1.0, 10.0])


def test_a_residual_of_sizes_on_the_same_side_is_beyond_at_the_recorded_size() -> None:
    residual = learn_residual(np.array([1.0, 2.0]), np.zeros(2))
    assert residual.beyond(0.0) == pytest.approx(1.0)
    assert residual.adding(0.0, 0.0).beyond(0.0) == 0.0


def _grown(name: str, executors: int, slope: float) -> Application:
    """Tasks that take ``slope`` (a log) longer for each doubling of the executors."""
    length = 2.0 * float(np.exp(slope * np.log2(executors)))
    program = Program((Part((Stage((length,) * 48),)),))
    application = run(program, executors, name=name)
    return replace(application, id=f"{name}-{executors}")


def test_repeats_of_a_size_are_a_single_observation() -> None:
    """The more often a size ran, the less it may count for: it is the same pair of sizes."""
    small, large = _grown("other", 2, 0.2), _grown("other", 8, 0.2)
    repeats = [replace(large, id=f"repeat-{number}") for number in range(6)]
    taught = [learn_growth([small, large]), learn_growth([small, large, *repeats])]
    assert taught[0] == taught[1]
    assert 0.1 < taught[0].tasks < 0.2


def test_a_single_application_in_the_history_narrows_no_interval() -> None:
    """Its own runs fit its own growth, which says nothing of how others grow."""
    sizes = [Size(count) for count in (2, 16)]
    other = [_grown("other", count, 0.0) for count in (2, 4, 8) for _ in range(2)]
    plain = Estimator(run(PROGRAM, 4)).estimates(sizes)
    for own, before in zip(
        Estimator(run(PROGRAM, 4), growth=learn_growth(other)).estimates(sizes), plain, strict=True
    ):
        assert own.deviation == pytest.approx(before.deviation, rel=0.01)


def test_the_history_is_as_uncertain_as_its_applications_differ() -> None:
    """Each is predicted from the others."""
    alike = [_grown(name, count, 0.2) for name in "ab" for count in (2, 4, 8)]
    apart = [
        _grown(name, count, slope) for name, slope in (("a", 0.5), ("b", -0.1)) for count in (2, 8)
    ]
    narrow, wide = learn_growth(alike).scatter, learn_growth(apart).scatter
    assert narrow is not None
    assert wide is not None
    assert narrow < 0.1
    # Half of the difference would be what a common growth leaves of both.
    assert wide > 0.4
    estimates = [
        Estimator(run(PROGRAM, 4), growth=learn_growth(each)).estimate(Size(16))
        for each in (alike, apart)
    ]
    assert estimates[0].deviation < 0.5 * estimates[1].deviation


def _with_ratio(application: Application, ratio: float) -> Application:
    settings = {**application.settings, "spark.kongming.sample.ratio": f"{ratio:g}"}
    return replace(application, settings=settings)


def test_runs_on_another_share_of_the_input_are_not_compared(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    sampled = write(_with_ratio(run(PROGRAM, 8), 0.1), tmp_path / "sampled")
    for args in (
        ("estimate", log, "--runs", sampled),
        ("evaluate", log, sampled),
        ("evaluate", sampled, log),
    ):
        done = kongming("spark", *args)
        assert done.returncode == 2
        assert "is of a run on 10 % of the input" in done.stderr
    own = write(_with_ratio(run(PROGRAM, 4), 0.1), tmp_path / "own")
    assert runtimes(kongming, own, "--runs", sampled)


def test_runs_on_samples_of_nearly_one_share_are_compared(
    kongming: Kongming, log: Path, tmp_path: Path
) -> None:
    """A log has the share that the sample came to have, which differs by its seed."""
    own = write(_with_ratio(run(PROGRAM, 4), 0.0998), tmp_path / "own")
    other = write(_with_ratio(run(PROGRAM, 8), 0.0998), tmp_path / "other")
    again = write(_with_ratio(run(PROGRAM, 8), 0.1021), tmp_path / "again")
    for args in (
        ("estimate", own, "--ratio", "10%", "--runs", other),
        ("estimate", own, "--runs", again),
        ("estimate", own, "--ratio", "20%", "--runs", other),
        ("estimate", log, "--ratio", "10%", "--runs", other),
        ("evaluate", own, again),
    ):
        done = kongming("spark", *args)
        assert done.returncode == 0, done.stderr
    done = kongming("spark", "estimate", log, "--runs", other)
    assert done.returncode == 2
    assert "--ratio SHARE" in done.stderr


def test_a_history_joins_samples_of_nearly_one_share() -> None:
    small, large = _grown("other", 2, 0.5), _grown("other", 8, 0.5)
    drawn_again = [_with_ratio(small, 0.0998), _with_ratio(large, 0.1021)]
    alike = [_with_ratio(each, 0.1) for each in (small, large)]
    assert learn_growth(drawn_again).tasks == pytest.approx(learn_growth(alike).tasks)
    assert learn_growth(alike).scatter is None


def test_one_program_on_two_samples_is_one_application() -> None:
    """It is as little known as from one sample how other programs differ from it."""
    grown = [_grown("other", size, 0.5) for size in (2, 8)]
    samples = [_with_ratio(each, ratio) for each in grown for ratio in (0.1, 0.2)]
    assert learn_growth(samples).scatter is None
    another = [_grown("another", size, 0.1) for size in (2, 8)]
    scatter = learn_growth([*samples, *another]).scatter
    assert scatter == pytest.approx(learn_growth([*grown, *another]).scatter, rel=0.1)


def test_a_history_pairs_runs_of_one_name_on_one_share_of_the_input() -> None:
    """Ten times the data, or another program, is no growth with the executors."""
    small, large = _grown("other", 2, 0.5), _grown("other", 8, 0.5)
    assert learn_growth([small, large]).tasks > 0.1
    for other in (
        [_with_ratio(small, 0.1), large],
        [replace(each, name="") for each in (small, large)],
    ):
        with pytest.raises(InputError, match="no application that ran at two sizes"):
            learn_growth(other)
