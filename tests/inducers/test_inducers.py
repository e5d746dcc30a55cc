from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kongming.inducers import GRACE_S, ORDERLY_GRACE_S, Inducer, Mix, induce, induce_all
from kongming.records.errors import InducerError, InputError, UnknownNameError
from kongming.records.run import LoadLevel


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def in_time(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60.0
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_runs_while_its_context_is_open(fake: Path) -> None:
    with induce("stream.triad", intensity=0.5, copies=2) as inducer:
        inducer.check()
        (pid,) = inducer.pids
        assert not gone(pid)
        assert inducer.result is None
    assert gone(pid)
    assert inducer.result is not None
    assert inducer.result.duty == 0.5
    assert inducer.level == LoadLevel("stream.triad", "memory", 0.5, 2)


def test_a_load_level_is_taken_as_it_is(fake: Path, tmp_path: Path) -> None:
    with induce(LoadLevel("compute.int", "compute", 0.25), directory=tmp_path) as inducer:
        pass
    assert inducer.result is not None
    assert inducer.result.duty == 0.25


def test_ends_at_its_deadline(fake: Path) -> None:
    with induce("compute.int", seconds=0.05) as inducer:
        result = inducer.wait(60.0)
        assert result is not None
        with pytest.raises(InducerError, match="ended after"):
            inducer.check()
    assert inducer.result == result


def test_waiting_can_be_given_up(fake: Path) -> None:
    with induce("compute.int") as inducer:
        assert inducer.wait(0.02) is None
        inducer.check()


def test_an_exception_inside_reaps_it(fake: Path) -> None:
    inducer = induce("compute.int")
    with pytest.raises(KeyError), inducer:
        raise KeyError
    assert inducer.pids
    assert all(gone(pid) for pid in inducer.pids)


def test_a_full_disk_is_the_binarys_sentence(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "disk-full")
    with pytest.raises(InducerError, match="2 GiB would stay free"), induce("iobench.write.4M"):
        pytest.fail("it was entered")


def test_a_death_meanwhile_is_found_by_check(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "dies")

    def dead() -> bool:
        try:
            inducer.check()
        except InducerError:
            return True
        return False

    with induce("compute.int") as inducer:
        assert in_time(dead)
        with pytest.raises(InducerError, match="a worker was killed"):
            inducer.wait()
    assert inducer.result is None


def test_one_that_is_never_ready_times_out(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "never-ready")
    inducer = induce("compute.int", ready_timeout_s=0.2)
    with pytest.raises(InducerError, match="not ready"), inducer:
        pytest.fail("it was entered")


def test_one_that_ignores_its_end_is_killed(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "deaf")
    monkeypatch.setattr("kongming.inducers.ORDERLY_GRACE_S", 0.5)
    with induce("compute.int") as inducer:
        (pid,) = inducer.pids
    assert gone(pid)
    assert inducer.result is None


def test_a_mix_runs_and_ends_together(fake: Path) -> None:
    levels = [LoadLevel("compute.int", "compute", 0.5), LoadLevel("stream.triad", "memory", 0.1)]
    with induce_all(levels, cpu=min(os.sched_getaffinity(0))) as mix:
        mix.check()
        pids = [pid for inducer in mix.inducers for pid in inducer.pids]
        assert len(pids) == 2
    assert [each.result.duty for each in mix.inducers if each.result is not None] == [0.5, 0.1]
    assert all(gone(pid) for pid in pids)


def test_a_mix_is_not_waited_for_after_an_exception(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kongming.inducers.GRACE_S", 0.01)
    monkeypatch.setenv("FAKE_MODE", "tardy")
    levels = [LoadLevel("compute.int", "compute", 0.5), LoadLevel("stream.triad", "memory", 0.1)]
    with induce_all(levels) as orderly:
        pass
    assert all(inducer.result is not None for inducer in orderly.inducers)
    with pytest.raises(KeyboardInterrupt), induce_all(levels) as interrupted:
        raise KeyboardInterrupt
    assert all(inducer.result is None for inducer in interrupted.inducers)
    assert all(gone(pid) for inducer in interrupted.inducers for pid in inducer.pids)


class Scripted(Inducer):
    """Writes into ``log`` what happens to it; each takes a part of the time to stop."""

    def __init__(self, log: list[tuple[str, float]], *, starts: bool = True) -> None:
        super().__init__(LoadLevel("compute.int", "compute"), ())
        self.log, self.starts = log, starts

    def start(self) -> None:
        if not self.starts:
            raise InducerError("It did not start.")

    def terminate(self) -> None:
        self.log.append(("terminate", 0.0))

    def stop(self, grace_s: float = 0.0) -> None:
        self.log.append(("stop", grace_s))
        time.sleep(0.01)


@pytest.mark.parametrize("starts", [True, False])
def test_all_of_a_mix_end_meanwhile_after_an_exception(starts: bool) -> None:
    log: list[tuple[str, float]] = []
    mix = Mix([Scripted(log), Scripted(log), Scripted(log, starts=starts)])
    with pytest.raises(RuntimeError if starts else InducerError), mix:
        raise RuntimeError
    assert [what for what, _ in log] == 3 * ["terminate"] + 3 * ["stop"]
    first, second, third = (grace_s for what, grace_s in log if what == "stop")
    assert GRACE_S >= first > second > third >= 0.0
    log.clear()
    with Mix([Scripted(log), Scripted(log)]):
        pass
    assert log == 2 * [("stop", ORDERLY_GRACE_S)]


def test_ctrl_c_while_a_mix_ends_in_order_shortens_the_end_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: list[tuple[str, float]] = []
    first, second = Scripted(log), Scripted(log)
    stop = second.stop

    def interrupted(grace_s: float) -> None:
        stop(grace_s)
        if grace_s == ORDERLY_GRACE_S:
            raise KeyboardInterrupt

    monkeypatch.setattr(second, "stop", interrupted)
    with pytest.raises(KeyboardInterrupt), Mix([first, second]):
        pass
    assert log[0] == ("stop", ORDERLY_GRACE_S)
    assert all(grace_s <= GRACE_S for what, grace_s in log[1:] if what == "stop")
    assert [what for what, _ in log[1:]] == 2 * ["terminate"] + 2 * ["stop"]


def test_a_mix_whose_part_is_unknown_starts_nothing(fake: Path) -> None:
    levels = [LoadLevel("compute.int", "compute"), LoadLevel("no.such", "memory")]
    with pytest.raises(UnknownNameError):
        induce_all(levels)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"intensity": 0.0}, "intensity"),
        ({"intensity": 1.5}, "intensity"),
        ({"copies": 0}, "copies"),
        ({"seconds": -1.0}, "seconds"),
        ({"cpu": 4096}, "cpu"),
    ],
)
def test_values_out_of_range_are_refused(
    fake: Path, settings: dict[str, float], field: str
) -> None:
    with pytest.raises(InputError, match=field):
        induce("compute.int", **settings)  # type: ignore[arg-type]


def test_a_probe_only_cannot_be_induced(fake: Path) -> None:
    with pytest.raises(InputError, match="waiting loads nothing"):
        induce("os.wakeup")
