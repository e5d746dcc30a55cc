from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kongming_agent.probing import prober as module
from kongming_agent.probing.prober import Meter, Prober, domains_of, needed_bytes
from kongming_agent.probing.schedule import Probe
from kongming_agent.reporting.status import Totals

from kongming.probes.node import node_facts
from kongming.probes.suite import Suite, load_suite
from kongming.profiling.runs import coupling
from kongming.records.errors import ProbeError
from kongming.records.fingerprint import COUPLING
from tests.builders import node

WRITING = "iobench.write.4M"


def new_prober(
    tmp_path: Path,
    *,
    carry_s: float = 900.0,
    writing: bool = True,
    cpu_quota: float | None = None,
) -> Prober:
    """A prober on the made-up binary, in whose quick suite a surrogate writes."""
    facts = replace(node_facts(), cgroup={"cpu_quota": cpu_quota})
    suite = load_suite(facts, tmp_path)
    if writing:
        surrogates = tuple(
            replace(each, suites=("quick", "standard")) if each.name == WRITING else each
            for each in suite.surrogates
        )
        suite = replace(suite, surrogates=surrogates)
    return Prober(facts, suite, tmp_path, write_s=0.03, carry_s=carry_s)


@pytest.fixture(params=[None])
def prober(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Prober:
    """Without a CPU quota, or under that of the parameter."""
    prober = new_prober(tmp_path, cpu_quota=request.param)
    # The library asks the binary anew, which knows of no such suite.
    monkeypatch.setattr("kongming.probes.fingerprinting.load_suite", lambda *_: prober.suite)
    return prober


def quick(*, writes: bool, domain: int = 0) -> Probe:
    return Probe(domain, "quick", "test", writes)


@pytest.mark.parametrize("prober", [None, 0.5], indirect=True)
def test_a_quick_fingerprint_has_every_surrogate_of_its_suite_and_a_cost(
    prober: Prober, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "calls"))
    cpu = prober.node.cpus[-1]
    taken = prober.take(quick(writes=True), cpu)
    assert taken.fingerprint.suite == "quick"
    assert taken.fingerprint.cpu == cpu
    assert tuple(taken.fingerprint.surrogates) == prober.suite.names_of("quick")
    assert taken.fingerprint.warnings == ()
    assert taken.cost.cpu_s > 0.0
    assert taken.cost.wall_s > 0.0
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    probes = [call for call in calls if call[0] == "probe"]
    # What writes has a shorter window of its own.
    assert [WRITING in call for call in probes] == [False, True]
    seconds = [float(call[call.index("--seconds") + 1]) for call in probes]
    assert seconds == [0.5, 0.03]
    longest = [float(call[call.index("--chunk") + 1]) for call in probes]
    quota = prober.node.cgroup["cpu_quota"] is not None
    # Long enough to see a quota and not only a stall; what writes keeps to its window all the same.
    assert longest == [pytest.approx(0.3 if quota else 0.5 / 6), 0.03]


def test_the_memory_of_another_child_is_not_that_of_a_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel tells the largest of all children: before and after each of two probes."""
    largest_kib = iter((1000, 3000, 3000, 3000))
    monkeypatch.setattr(module, "_largest_child_bytes", lambda: next(largest_kib) << 10)
    peaks = [Meter().peak_bytes() for _ in range(2)]
    assert peaks == [3000 << 10, None]
    totals = Totals()
    for peak in peaks:
        totals.used(peak)
    assert totals.peak_bytes == 3000 << 10


def test_the_memory_of_a_child_is_what_it_held() -> None:
    """In a process without children before it: the kernel forgets none."""
    script = (
        "import subprocess, sys\n"
        "from kongming_agent.probing.prober import Meter\n"
        "def peak(mib):\n"
        "    meter = Meter()\n"
        "    held = f'held = b\"x\" * ({mib} << 20)'\n"
        "    subprocess.run([sys.executable, '-c', held], check=True)\n"
        "    return meter.peak_bytes()\n"
        "print(peak(100), peak(1), peak(200))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    first, smaller, larger = done.stdout.decode().split()
    assert 100 << 20 < int(first) < 200 << 20 < int(larger) < 400 << 20
    assert smaller == "None"


@pytest.mark.parametrize(("busy", "reason"), [(0.0, None), (0.5, "is not idle")])
def test_the_coupling_is_measured_on_idle_cpus_only(
    busy: float,
    reason: str | None,
    prober: Prober,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu = prober.node.cpus[0]
    neighbours = coupling.neighbours_of(prober.node, cpu)
    if not neighbours:
        pytest.skip("no two cores share a cache")
    shares = dict.fromkeys(prober.node.cpus, busy) | {cpu: 0.0}
    monkeypatch.setattr(coupling, "busy_shares", lambda *_: shares)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "calls"))
    # The made-up chase takes twice as long next to a load.
    monkeypatch.setenv("FAKE_MODE", "shared")
    fingerprint = prober.take(quick(writes=False), cpu, coupling=True).fingerprint
    coupling_warnings = [words for words in fingerprint.warnings if "coupling" in words]
    loads = [line for line in (tmp_path / "calls").read_text().splitlines() if '"induce"' in line]
    if reason is None:
        assert fingerprint.passive[COUPLING] == pytest.approx(2.0)
        assert (coupling_warnings, len(loads)) == ([], 1)
    else:
        assert COUPLING not in fingerprint.passive
        assert len(coupling_warnings) == 1
        assert reason in coupling_warnings[0]
        assert loads == []


def test_without_writing_the_last_readings_are_repeated_and_marked(prober: Prober) -> None:
    first = prober.take(quick(writes=True), prober.node.cpus[0]).fingerprint
    second = prober.take(quick(writes=False), prober.node.cpus[0]).fingerprint
    repeated = second.surrogates[WRITING]
    assert repeated.seconds_per_op == first.surrogates[WRITING].seconds_per_op
    assert (repeated.n, repeated.ops, repeated.elapsed_s) == (0, 0, 0.0)
    assert any("to write less" in words for words in second.warnings)


def test_what_is_too_old_or_of_another_domain_is_left_out_with_its_reason(
    prober: Prober, tmp_path: Path
) -> None:
    prober.take(quick(writes=True), prober.node.cpus[0])
    other = prober.take(quick(writes=False, domain=1), prober.node.cpus[0]).fingerprint
    assert "left out" in (other.surrogates[WRITING].error or "")
    old = Prober(prober.node, prober.suite, tmp_path, write_s=0.03, carry_s=0.0)
    old.take(quick(writes=True), prober.node.cpus[0])
    left = old.take(quick(writes=False), prober.node.cpus[0]).fingerprint
    assert WRITING not in left.times()
    assert set(left.times()) == set(prober.suite.names_of("quick")) - {WRITING}


def test_a_standard_fingerprint_is_taken_whole(prober: Prober) -> None:
    taken = prober.take(Probe(0, "standard", "idle"), prober.node.cpus[0])
    assert taken.fingerprint.suite == "standard"
    assert WRITING in taken.fingerprint.times()


def test_a_binary_that_fails_is_an_error(prober: Prober, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MODE", "fails")
    with pytest.raises(ProbeError, match="no such thing"):
        prober.take(quick(writes=True), prober.node.cpus[0])


def test_domains_are_those_with_allowed_cpus() -> None:
    facts = node(cpus=(0, 1, 4), llc_cpus=((0, 1), (2, 3), (4, 5)))
    assert domains_of(facts) == ((0, (0, 1)), (2, (4,)))
    assert domains_of(node(cpus=(0, 1), llc_cpus=())) == ((0, (0, 1)),)


def test_the_memory_that_a_suite_needs_is_bounded_by_its_share(fake: Path, tmp_path: Path) -> None:
    suite: Suite = load_suite(node(), tmp_path)
    assert needed_bytes(node(), suite, "quick") == 8 << 20
    assert needed_bytes(node(memory_bytes=16 << 20), suite, "quick") == 4 << 20
