"""Phase 2 of Algorithm 1: the fingerprint that a neighbour sees beside an application."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kongming.errors import ApplicationRunError
from kongming.fingerprint import Fingerprint
from kongming.probes.aggregation import Chunk, within
from kongming.probes.fingerprinting import schedule
from kongming.probes.watching import watch
from kongming.profiling.load_loop import loop
from kongming.profiling.plans import SIGNATURE_ITERATIONS
from kongming.profiling.runner import AnyRunner
from kongming.profiling.site import Site

POLL_S = 0.05

NEGLIGIBLE_GAP = 0.02
"""A gap between iterations that is a smaller share of a slice than this is not cut out: slices on a
shared core are so long that few would lie inside one iteration."""

SHORTEST_SLICE_S = 0.004
"""Below this a slice is little more than its own warm-up."""


def covered(chunks: Sequence[Chunk], windows: Sequence[tuple[int, int]]) -> frozenset[str]:
    """Surrogates with at least one chunk that lies wholly inside one window (nanoseconds)."""
    return frozenset(chunk.name for chunk in chunks if within(chunk, windows))


def joined(windows: Sequence[tuple[int, int]], gap_ns: float) -> list[tuple[int, int]]:
    """Windows in their order, those less than ``gap_ns`` apart made into one."""
    result: list[tuple[int, int]] = []
    for start, end in windows:
        if result and start - result[-1][1] <= gap_ns:
            result[-1] = (result[-1][0], end)
        else:
            result.append((start, end))
    return result


def slice_seconds(usual: float, iteration_s: float, surrogates: int) -> float:
    """The slices of the fingerprints that models are trained on, or shorter ones if need be.

    A set that was just warmed loses its cache to the neighbour little by little: a longer slice
    reads another cost, so the usual one is kept. Only where the iterations of a short program
    would not see every surrogate twice are slices made to fit, down to 4 ms.
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
    """Run the application again and again at the neighbour's seat while the suite is timed at the
    program's.

    So it is as in every co-run, where it is the neighbour: seats are not alike (an interrupt, or
    another tenant of the host, is on one of them), and a program meets the pressure at its own.

    Returns:
        The fingerprint, aggregated over whole iterations only (gaps left out; time in which
        the program is faster or slower counts for as long as it lasts), and their number.

    Raises:
        ApplicationRunError: the application failed while it looped.
        ProbeError: the suite could not be timed.
    """
    fewest, most = SIGNATURE_ITERATIONS
    chunk = schedule(suite, len(names), steady=site.shared_core).chunk
    if not site.shared_core:
        # On a shared core a short slice sees nothing, or a stall: there it stays as long as it is.
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
        # The probe's set-up is over here: iterations that began before it are not counted.
        ready_ns = time.monotonic_ns()
        longest = (
            time.monotonic() + 60.0 + (most + 2) * max(20.0 * iteration_s, len(names) * chunk * 2.0)
        )
        while True:
            running.check()
            probe.check()
            windows = [
                (start, end) for start, end, ok in running.iterations() if ok and start >= ready_ns
            ]
            if len(windows) >= most:
                break
            if len(windows) >= fewest:
                seen = covered(probe.chunks(), joined(windows, gap_ns))
                missing = set(names) - seen - set(probe.errors())
                if not missing:
                    break
            if time.monotonic() > longest:
                raise ApplicationRunError(
                    f"{runner.app.name} did not finish {fewest} iterations in time while the "
                    "suite was timed beside it."
                )
            time.sleep(POLL_S)
        watched = probe.stop(joined(windows, gap_ns))
    return watched.fingerprint, len(windows)
