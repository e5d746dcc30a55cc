"""Which signals and fingerprints count as a disturbance, and how they are reported."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from kongming.gate.disturbance import from_signals
from kongming.gate.fitness import Answer, Turn, decide
from kongming.gate.noise import Goal
from kongming.gate.signals import Competitor, Signals, between, state
from kongming.gate.watching import incomparable

AT = "2026-01-31T12:00:00.000Z"
QUIET = Signals(AT, 10.0, 2, steal=0.0, others=0.01, throttled=0.0, throttled_periods=0, memory=0.0)
TIMES = {"compute.int": 1e-9, "compute.float": 1e-9, "memory.random.8M": 2e-8}


def proc(root: Path, second: bool) -> Path:
    """A machine of two CPUs at two moments: process 10 is ours, with a child; 20 is another's."""
    busy, ours, other = (300, 100, 90) if second else (100, 0, 0)
    reaped = 40 if second else 0
    files = {
        "proc/stat": f"cpu  {2 * busy} 0 0 0 0 0 0 {6 if second else 0}\n"
        f"cpu0 {busy} 0 0 500 0 0 0 {6 if second else 0}\ncpu1 {busy - 60 * second} 0 0 500\n",
        "proc/uptime": "1000.00 0.00",
        "proc/10/stat": f"10 (a b) c) S 1 0 0 0 0 0 0 0 0 0 {ours} 0 {reaped} 0 0 0 0 0 500 "
        + "0 " * 16
        + "0",
        "proc/11/stat": f"11 (child) S 10 0 0 0 0 0 0 0 0 0 {ours} 0 0 0 0 0 0 0 600 "
        + "0 " * 16
        + "1",
        "proc/20/stat": f"20 (other one) R 1 0 0 0 0 0 0 0 0 0 {other} 0 0 0 0 0 0 0 99000 "
        + "0 " * 16
        + "1",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_signals_of_a_made_up_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kongming.gate.signals.TICKS_PER_S", 100)
    clock = iter((10.0, 12.0))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    before, after = (state(proc(tmp_path / str(k), bool(k))) for k in (0, 1))
    signals = between(before, after, {0, 1}, pid=10)
    # 200 + 140 ticks were busy, of which ours were 100 + 40 + 100: 100 of 200 on each CPU are left.
    assert signals.others == pytest.approx(0.5)
    assert signals.steal == pytest.approx(6 / 400)
    assert [(process.pid, process.name, process.cpus) for process in signals.seen] == [
        (20, "other one", 0.45)
    ]
    assert from_signals(signals, 0.02)[0].resource == "steal"
    assert not signals.further
    # What runs on a CPU that we may not use does not take ours.
    assert between(before, after, {0}, pid=10).cpus == 1
    # What ran there last may have used its time on any.
    assert between(before, after, {1}, pid=10).further


def test_each_signal_is_a_reason_of_its_own() -> None:
    assert from_signals(QUIET, 0.02) == []
    seen = (Competitor(7, "make", 0.9, AT), Competitor(8, "init", 0.001, AT))
    loud = Signals(
        AT, 10.0, 2, steal=0.02, others=0.9, seen=seen, throttled=0.1, throttled_periods=12,
        overheated=1, memory=0.2,
    )  # fmt: skip
    reasons = {reason.resource: str(reason) for reason in from_signals(loud, 0.02)}
    assert list(reasons) == ["steal", "processes", "quota", "heat", "memory-pressure"]
    assert "0.90 of 2 CPUs: make 0.90 (process 7 since 2026-01-31" in reasons["processes"]
    assert "init" not in reasons["processes"]
    assert "12 periods, for up to 10 % of the time" in reasons["quota"]
    partly = replace(loud, others=0.14, cpus=1, further=True)
    text = {reason.resource: str(reason) for reason in from_signals(partly, 0.02)}["processes"]
    assert "used 0.14 of 1 CPU; on all CPUs: make 0.90 (process 7" in text
    # A larger effect bears more.
    assert "steal" not in {reason.resource for reason in from_signals(loud, 0.1)}


@pytest.mark.parametrize(("throttled_s", "share"), [(0.1, 0.05), (3.0, 1.0)])
def test_a_quota_stops_for_no_longer_than_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, throttled_s: float, share: float
) -> None:
    """The kernel counts the time of each CPU that is stopped."""
    clock = iter((10.0, 12.0))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    before, after = (
        replace(machine, passive=replace(machine.passive, counters={"throttled_s": counted}))
        for machine, counted in (
            (state(proc(tmp_path / "0", False)), 1.0),
            (state(proc(tmp_path / "1", True)), 1.0 + throttled_s),
        )
    )
    signals = between(before, after, {0, 1}, pid=10)
    assert signals.throttled == pytest.approx(share)
    (reason,) = [each for each in from_signals(signals, 0.02) if each.resource == "quota"]
    assert f"for up to {100 * share:.0f}" in str(reason)


def turns(*factors: float, signals: Signals = QUIET) -> list[Turn]:
    wobble = (1.0, 1.002, 0.998, 1.001, 0.999)
    return [
        Turn(
            signals, {name: t * factor * wobble[k % 5] for name, t in TIMES.items()}, wobble[k % 5]
        )
        for k, factor in enumerate(factors)
    ]


def test_a_quiet_machine_is_fit() -> None:
    answer = decide(turns(*[1.0] * 12), QUIET, Goal(0.02))
    assert answer.fit, answer.reasons
    assert answer.repetitions == 6
    assert {subject.name for subject in answer.subjects} == {"compute.int", "compute.float"}


def test_the_name_of_a_process_is_obeyed_by_no_terminal_and_ends_no_line() -> None:
    seen = (Competitor(7, "x\n::error::\x1b[2J", 0.9, AT),)
    (reason,) = from_signals(replace(QUIET, others=0.9, seen=seen), 0.02)
    assert "x\\n::error::\\x1b[2J 0.90" in str(reason)


def test_a_surrogate_that_fails_in_some_turns_ends_nothing() -> None:
    complete = turns(*[1.0] * 6)
    partly = [replace(complete[0], times={"compute.int": 1e-9}), *complete[1:]]
    answer = decide(partly, QUIET, Goal(0.02))
    assert answer.fit, answer.reasons
    assert [subject.name for subject in answer.subjects] == ["compute.int"]
    # Without any nothing is known: that is not fit.
    (reason,) = decide([replace(turn, times={}) for turn in complete], QUIET, Goal(0.02)).reasons
    assert reason.resource == "noise"


def test_reasons_name_the_resource_and_since_when() -> None:
    disturbed = decide(turns(*[1.0] * 8, *[1.5] * 4), QUIET, Goal(0.02), most=20, command=True)
    (compute, memory) = disturbed.reasons
    assert (compute.resource, memory.resource) == ("compute", "memory")
    assert "50" in compute.text
    assert "4 of 12 turns" in compute.text
    # Once is chance, or over already.
    assert decide(turns(*[1.0] * 11, 1.5), QUIET, Goal(0.02), command=True).fit

    noisy = turns(*[math.exp(0.02 * math.sin(k)) for k in range(20)])
    (reason, *_) = decide(noisy, QUIET, Goal(0.002), most=30).reasons
    assert reason.resource == "noise"
    assert "more than 30" in reason.text


def test_two_programs_by_turns_have_a_verdict_unless_disturbed() -> None:
    def compared(factor: float, changes: list[float], runs: int = 12) -> Answer:
        """Turns of a machine whose level is what ``changes`` say, in the programs' times too."""
        levels = [changes[k % len(changes)] for k in range(runs)]
        both = [
            replace(turn, baseline_s=level, run_s=(turn.run_s or 0.0) * level * factor)
            for turn, level in zip(turns(*[1.0] * runs), levels, strict=True)
        ]
        return decide(both, QUIET, Goal(0.05), command=True)

    # The machine's drift of 30 % is in both programs of a turn.
    drifting = [1.0, 1.1, 1.3, 1.2]
    for factor, verdict in ((1.0, "not slower"), (1.05, "slower"), (0.9, "not slower")):
        answer = compared(factor, drifting)
        assert (answer.verdict, answer.fit) == (verdict, True)
        assert answer.comparison is not None
        assert answer.comparison.ratio == pytest.approx(factor, rel=0.01)
    (subject,) = compared(1.0, drifting).subjects
    assert subject.noise.estimate < 0.005

    # A disturbed measurement has none, however clear it looks.
    slower = [replace(turn, baseline_s=1.0, run_s=2.0) for turn in turns(*[1.0, 1.5] * 6)]
    disturbed = decide(slower, QUIET, Goal(0.05), command=True)
    assert (disturbed.verdict, disturbed.comparison, disturbed.fit) == ("cannot tell", None, False)
    assert disturbed.to_dict()["comparison"] is None


def test_few_runs_are_not_taken_for_certainty() -> None:
    """With the same noise six runs do not show what twenty do."""
    few, many = (
        decide(turns(*[math.exp(0.009 * math.sin(k)) for k in range(n)]), QUIET, Goal(0.02), most=9)
        for n in (6, 30)
    )
    assert many.fit, many.reasons
    assert not few.fit
    assert "not known well enough" in few.reasons[0].text


def test_which_baselines_are_none() -> None:
    then = {
        "schema": 1, "machine": "m", "cpu": 0, "suite_version": "1", "before": TIMES,
        "after": TIMES, "disturbed": [],
    }  # fmt: skip
    slower = {name: 1.1 * seconds for name, seconds in TIMES.items()}
    assert incomparable(then, then) == []
    (text,) = incomparable(then | {"before": slower, "after": slower}, then)
    assert "arithmetic in registers is 10 % slower" in text
    (text,) = incomparable(then, then | {"before": slower, "after": slower})
    assert "faster" in text
    assert "another CPU" in incomparable(then | {"cpu": 1}, then)[0]
    assert incomparable(then | {"machine": "n"}, then) == ["The baseline is of another machine."]
    disturbed = then | {"disturbed": [{"resource": "steal", "reason": "Steal."}]}
    assert incomparable(then, disturbed) == ["The baseline was disturbed: Steal."]
    assert "without KONGMING" in incomparable(then, None)[0]
    assert "cannot be read" in incomparable(then, {"disturbed": 3})[0]
