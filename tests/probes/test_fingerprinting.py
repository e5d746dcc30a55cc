from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kongming.probes.aggregation import Chunk
from kongming.probes.fingerprinting import Progress, schedule, take_fingerprint
from kongming.probes.node import node_facts
from kongming.probes.recording import Record, assemble
from kongming.probes.suite import load_suite
from kongming.probes.watching import watch
from kongming.records import moments
from kongming.records.errors import InputError, ProbeError, UnknownNameError
from kongming.records.fingerprint import Fingerprint


def last_probe(log: Path) -> dict[str, str]:
    runs = [json.loads(line) for line in log.read_text().splitlines()]
    words = [run for run in runs if run[0] == "probe"][-1][1:]
    return {word: words[i + 1] for i, word in enumerate(words[:-1]) if word.startswith("--")}


def test_standard_has_every_surrogate(fake: Path) -> None:
    fingerprint = take_fingerprint(seconds=0.1)
    assert fingerprint.suite == "standard"
    assert set(fingerprint.times()) == set(fingerprint.surrogates)
    assert len(fingerprint.surrogates) == 8
    chase = fingerprint.surrogates["memory.random.8M"]
    # Two batches at 20 ns and one at 60: the mean is what was paid, the median what is usual.
    assert chase.seconds_per_op == pytest.approx(100e-9 / 3)
    assert chase.median == pytest.approx(20e-9)
    assert (chase.family, chase.op, chase.size_bytes) == ("cache", "one operation", 8 << 20)
    assert fingerprint.surrogates["iobench.read.4M"].direct is True
    assert fingerprint.warnings == ()
    assert fingerprint.passive["memory_available_bytes"] > 0
    assert fingerprint.elapsed_s > 0
    document = json.loads(json.dumps(fingerprint.to_dict()))
    assert Fingerprint.from_dict(document).times() == fingerprint.times()


def test_names_make_a_suite_of_their_own(fake: Path) -> None:
    fingerprint = take_fingerprint(names=["stream.triad", "compute.int", "stream.triad"])
    assert list(fingerprint.surrogates) == ["stream.triad", "compute.int"]
    assert fingerprint.suite == "custom"
    with pytest.raises(UnknownNameError):
        take_fingerprint(names=["stream.quad"])


def test_the_names_of_a_suite_are_that_suite(fake: Path) -> None:
    names = ["memory.random.8M", "compute.int", "iobench.read.4M"]
    assert take_fingerprint(suite="quick", names=names, seconds=0.05).suite == "quick"


def test_failed_probes_are_missing_values_with_reasons(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "io-fails")
    fingerprint = take_fingerprint(seconds=0.05)
    failed = fingerprint.surrogates["iobench.write.4M"]
    assert failed.error == "The folder is read-only."
    assert failed.family == "write"
    assert "compute.int" in fingerprint.times()
    assert "iobench.write.4M" not in fingerprint.times()
    assert any("2 of 8" in warning for warning in fingerprint.warnings)


def test_every_probe_failing_is_still_a_record(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "all-fail")
    fingerprint = take_fingerprint(seconds=0.05)
    assert fingerprint.times() == {}


def test_a_death_half_way_keeps_what_was_measured(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "dies")
    fingerprint = take_fingerprint(names=["compute.int", "stream.triad"], seconds=0.05)
    assert set(fingerprint.times()) == {"compute.int"}
    assert "SIGKILL" in (fingerprint.surrogates["stream.triad"].error or "")
    assert any("ended early" in warning for warning in fingerprint.warnings)


@pytest.mark.parametrize(
    ("mode", "message"), [("malformed", "not understood"), ("newer", "schema 9")]
)
def test_nothing_understood_is_an_error(
    fake: Path, monkeypatch: pytest.MonkeyPatch, mode: str, message: str
) -> None:
    monkeypatch.setenv("FAKE_MODE", mode)
    with pytest.raises(ProbeError, match=message):
        take_fingerprint(names=["compute.int"], seconds=0.05)


def test_buffered_files_are_reported(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "buffered")
    fingerprint = take_fingerprint(names=["iobench.read.4M"], seconds=0.05)
    assert fingerprint.surrogates["iobench.read.4M"].direct is False
    assert any("Buffered" in warning for warning in fingerprint.warnings)


def test_cpu_and_folder_are_checked(fake: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cpu"):
        take_fingerprint(cpu=4096)
    with pytest.raises(InputError, match="dir"):
        take_fingerprint(directory=tmp_path / "missing")


def test_cpu_and_folder_reach_the_binary(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    cpu = max(os.sched_getaffinity(0))
    assert take_fingerprint(cpu=cpu, directory=tmp_path, seconds=0.05).cpu == cpu
    given = last_probe(tmp_path / "log")
    assert (given["--cpu"], given["--dir"]) == (str(cpu), str(tmp_path))


@pytest.mark.parametrize(("shared", "quota"), [(True, None), (False, 0.5)])
def test_shared_or_throttled_cpus_get_long_chunks(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool, quota: float | None
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    node = replace(node_facts(), cgroup={"cpu_quota": quota})
    take_fingerprint(node, "quick", shared_core=shared)
    assert float(last_probe(tmp_path / "log")["--chunk"]) >= 0.3


def test_progress_tells_layout_and_measuring(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "layout")
    seen: list[Progress] = []
    take_fingerprint(names=["compute.int"], seconds=0.05, rounds=3, on_progress=seen.append)
    assert [p.done for p in seen if p.phase == "layout"] == [0, 50, 100]
    measuring = [p for p in seen if p.phase == "measuring"]
    assert measuring[-1].done == measuring[-1].total == 3


@given(st.sampled_from(["quick", "standard", "full"]), st.integers(1, 60), st.booleans())
def test_schedules_fit_their_window(suite: str, count: int, steady: bool) -> None:
    plan = schedule(suite, count, steady=steady)
    assert plan.rounds >= 1
    assert plan.rounds * plan.chunk * count <= plan.seconds * 1.51
    assert plan.whole_blocks == (suite == "full")
    if steady:
        assert plan.chunk >= 0.3
    elif count > 1 and suite != "full":
        assert plan.rounds >= 2


def test_a_watch_keeps_probing_until_it_is_stopped(fake: Path) -> None:
    with watch(["compute.int", "stream.triad"], chunk=0.01) as probe:
        deadline = time.monotonic() + 60.0
        while len(probe.chunks()) < 8 and time.monotonic() < deadline:
            probe.check()
            time.sleep(0.01)
        middle = probe.chunks()[4]
        seen = probe.stop([(middle.start_ns, middle.end_ns)])
    assert len(seen.chunks) >= 8
    assert seen.errors == {}
    assert set(seen.fingerprint.times()) == {middle.name}
    other = ({"compute.int", "stream.triad"} - {middle.name}).pop()
    assert "windows" in (seen.fingerprint.surrogates[other].error or "")
    assert probe.stop() is seen


def test_a_watch_that_fails_to_start_says_why(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "newer")
    with (
        pytest.raises(ProbeError, match="schema 9"),
        watch(["compute.int"]),
    ):
        pytest.fail("it was entered")


def test_a_watch_that_is_never_ready_times_out(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "silent")
    with (
        pytest.raises(ProbeError, match="not ready"),
        watch(["compute.int"], ready_timeout_s=0.3),
    ):
        pytest.fail("it was entered")


def test_a_watch_whose_binary_dies_says_so(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On entering too, where it dies before that is done."""
    monkeypatch.setenv("FAKE_MODE", "dies")
    probe = watch(["compute.int", "stream.triad"])

    def until_it_dies() -> None:
        with probe:
            deadline = time.monotonic() + 60.0
            while time.monotonic() < deadline:
                probe.check()
                time.sleep(0.01)

    with pytest.raises(ProbeError, match="SIGKILL"):
        until_it_dies()
    assert len(probe.chunks()) == 1


def test_a_surrogate_that_fails_later_has_no_number(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "fails-late")
    taken = take_fingerprint(names=["compute.int", "stream.triad"], seconds=60.0, rounds=3)
    assert set(taken.times()) == {"stream.triad"}
    assert taken.surrogates["compute.int"].error == "What it read is not what it wrote."
    assert "1 of 2 surrogates" in " ".join(taken.warnings)


def test_what_fails_because_a_watch_is_stopped_keeps_its_number(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_MODE", "torn")
    with watch(["compute.int"], chunk=0.01) as probe:
        deadline = time.monotonic() + 60.0
        while not probe.chunks() and time.monotonic() < deadline:
            time.sleep(0.01)
        seen = probe.stop()
    assert set(seen.fingerprint.times()) == {"compute.int"}
    assert seen.errors == {}


def test_what_disturbed_a_measurement_is_reported(fake: Path) -> None:
    chunk = Chunk("compute.int", 0, 10, 1.0, 10, ((1.0, 10),))
    record = Record([chunk], clock_granularity_ns=4_000_000, layout=(50, 100))
    fingerprint = assemble(
        record,
        node=replace(node_facts(), cgroup={"cpu_quota": 0.5}),
        suite=load_suite(),
        suite_name="custom",
        names=["compute.int"],
        cpu=0,
        started_at=moments.now(),
        passive={"nr_throttled": 3.0},
    )
    text = " ".join(fingerprint.warnings)
    for word in ("50 of 100 bytes", "4000000 ns", "0.5 CPUs", "3 periods"):
        assert word in text
