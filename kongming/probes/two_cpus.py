"""A surrogate timed on one CPU, alone and next to a load on another CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median

from kongming.probes.binary import Event, Microbench
from kongming.records.errors import ProbeError

_TIMEOUT_S = 30.0


def alone_and_together(
    timed: str,
    cpu: int,
    load: str,
    neighbour: int,
    *,
    seconds: float,
    options: Sequence[str] = (),
) -> tuple[float, float]:
    """Time the surrogate ``timed`` on ``cpu`` twice for ``seconds``: alone, then while ``load``
    runs on ``neighbour``. ``options`` are the binary's, for probe and load alike.

    Returns:
        The seconds of an operation alone, and next to the load: medians over batches, which a
        process that takes the CPU for a few of them does not change.

    Raises:
        ProbeError: the probe or the load failed.
    """
    alone = _timed(timed, cpu, seconds, options)
    induce = ["induce", *options, "--cpu", str(neighbour), "--seconds", str(10 * seconds + 10)]
    with Microbench([*induce, load]) as running:
        _wait_ready(running)
        return alone, _timed(timed, cpu, seconds, options)


def _timed(name: str, cpu: int, seconds: float, options: Sequence[str]) -> float:
    batches: list[float] = []
    arguments = ["probe", *options, "--cpu", str(cpu), "--seconds", str(seconds), name]
    with Microbench(arguments) as probe:
        for event in _events(probe, seconds + _TIMEOUT_S):
            if event.get("event") == "chunk":
                batches += [1e-9 * ns / done for done, ns in event["batches"]]
            elif event.get("event") == "error":
                raise ProbeError(str(event.get("error")))
        probe.finish()
    if not batches:
        raise ProbeError(f"{name} gave no readings on CPU {cpu}.")
    return median(batches)


def _wait_ready(load: Microbench) -> None:
    for event in _events(load, _TIMEOUT_S):
        if event.get("event") == "ready":
            return
        if event.get("event") == "error":
            raise ProbeError(str(event.get("error")))
    raise ProbeError(load.failure())


def _events(running: Microbench, seconds: float) -> Iterator[Event]:
    deadline = time.monotonic() + seconds
    try:
        while (event := running.read(max(0.0, deadline - time.monotonic()))) is not None:
            yield event
    except TimeoutError as error:
        raise ProbeError(f"A probe of two CPUs took more than {seconds:g} s.") from error
