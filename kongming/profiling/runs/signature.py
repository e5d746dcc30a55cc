"""Phase 2 of Algorithm 1: the fingerprint taken co-located with an application."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kongming.probes.aggregation import Chunk, within
from kongming.probes.fingerprinting import schedule
from kongming.probes.watching import watch
from kongming.profiling.plans.steps import SIGNATURE_ITERATIONS
from kongming.profiling.runs.load_loop import loop
from kongming.profiling.runs.runner import AnyRunner
from kongming.profiling.site import Site
from kongming.records.errors import ApplicationRunError
from kongming.records.fingerprint import Fingerprint

POLL_S = 0.05

NEGLIGIBLE_GAP = 0.02
"""Gaps between iterations below this share of a slice are not excluded: on a shared core slices are
so long that few would lie inside one iteration."""

SHORTEST_SLICE_S = 0.004
"""Shorter slices would be dominated by their warm-up."""

LONGEST_ROTATIONS = 6.0
"""A short program is looped until every surrogate was seen, or this many rounds of the suite have
passed: what was not seen by then hardly ever will be."""


def needed_seconds(suite: str, surrogates: int, *, shared_core: bool) -> float:
    """Return the shortest iteration in which a slice of every surrogate surely fits: two slices."""
    chunk = schedule(suite, surrogates, steady=shared_core).chunk
    return 2.0 * (chunk if shared_core else min(chunk, SHORTEST_SLICE_S))


def covered(chunks: Sequence[Chunk], windows: Sequence[tuple[int, int]]) -> frozenset[str]:
    """Return the surrogates with at least one chunk completely inside a window (nanoseconds)."""
    return frozenset(chunk.name for chunk in chunks if within(chunk, windows))


def joined(windows: Sequence[tuple[int, int]], gap_ns: float) -> list[tuple[int, int]]:
    """Merge consecutive windows that are at most ``gap_ns`` apart."""
    result: list[tuple[int, int]] = []
    for start, end in windows:
        if result and start - result[-1][1] <= gap_ns:
            result[-1] = (result[-1][0], end)
        else:
            result.append((start, end))
    return result


def slice_seconds(usual: float, iteration_s: float, surrogates: int) -> float:
    """Return the slice length: the one of training fingerprints, or shorter if necessary.

    A surrogate's warm working set is gradually evicted by the neighbour, so that the measured
    time depends on the slice length, and the usual one is preferred. Slices are shortened, to
    4 ms at least, only if the iterations of a short program would not cover every surrogate
    twice.
    """
    affordable = SIGNATURE_ITERATIONS[0] * iteration_s / (2.0 * max(1, surrogates))
    return min(usual, max(SHORTEST_SLICE_S, affordable))


def take_signature(
    runner: AnyRunner,
    site: Site,
    names: Sequence[str],
    *,
    suite: str,
    iteration_s: float,
) -> tuple[Fingerprint, int]:
    """Loop the application on the neighbour's CPU while the suite is timed on the program's CPU.

    This matches co-runs, in which the application is the neighbour: CPUs are not equivalent (an
    interrupt or another tenant of the host may use one of them), and a program experiences the
    interference on its own CPU.

    Returns:
        The fingerprint, aggregated over complete iterations only (without gaps, and weighted
        by time), and their number.

    Raises:
        ApplicationRunError: the application failed while it looped.
        ProbeError: the suite could not be timed.
    """
    fewest, most = SIGNATURE_ITERATIONS
    chunk = schedule(suite, len(names), steady=site.shared_core).chunk
    if not site.shared_core:
        # On a shared core a short slice sees either nothing or a stall, so it is not shortened.
        chunk = slice_seconds(chunk, iteration_s, len(names))
    gap_ns = 1e9 * NEGLIGIBLE_GAP * chunk
    with (
        watch(
            names,
            node=site.node,
            suite=suite,
            cpu=site.app_cpus[0],
            directory=site.io_dir,
            chunk=chunk,
            cgroup_procs=site.app_procs,
        ) as probe,
        loop(runner, (site.neighbour_cpu,), site.load_procs, avoid=site.app_cpus) as running,
    ):
        # Count only iterations that begin after the probe's set-up.
        ready_ns = time.monotonic_ns()
        patience = time.monotonic() + LONGEST_ROTATIONS * len(names) * chunk
        deadline = (
            time.monotonic() + 60.0 + (most + 2) * max(20.0 * iteration_s, len(names) * chunk * 2.0)
        )
        while True:
            running.check()
            probe.check()
            windows = [
                (start, end) for start, end, ok in running.iterations() if ok and start >= ready_ns
            ]
            if len(windows) >= fewest:
                measured = covered(probe.chunks(), joined(windows, gap_ns))
                missing = set(names) - measured - set(probe.errors())
                if not missing or (len(windows) >= most and time.monotonic() > patience):
                    break
            if len(windows) < fewest and time.monotonic() > deadline:
                raise ApplicationRunError(
                    f"{runner.app.name} did not finish {fewest} iterations in time while the "
                    "co-located suite was timed."
                )
            time.sleep(POLL_S)
        watched = probe.stop(joined(windows, gap_ns))
    return watched.fingerprint, len(windows)
