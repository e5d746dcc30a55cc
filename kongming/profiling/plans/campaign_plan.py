"""Runs of a campaign and their order: pure, and reproducible for a seed.

A plan is a list of blocks. Under one block's load the suite is timed, then each of the block's
applications (paper, Algorithm 1, phase 1); a signature block loops one application while the
co-located suite is timed (phase 2).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kongming.profiling.plans.order import Block, Load, ordered, parts, rounds_of
from kongming.profiling.plans.run_limit import most_overtime, usual_limit_s
from kongming.profiling.plans.steps import SIGNATURE_ITERATIONS, Mixed, Plan, Step
from kongming.records.control import TAKES
from kongming.records.errors import InputError
from kongming.records.run import LoadLevel

ADAPTIVE = "adaptive"
PLANS = ("quick", "paper", ADAPTIVE)

PAPER_OBSERVATIONS = 10
"""Observations of each combination of application and inducer (paper, section IV.B)."""

PAPER_SURROGATES = (
    "memory.streaming.1K",
    "memory.streaming.1M",
    "memory.streaming.1G",
    "memory.random.1K",
    "memory.random.1M",
    "memory.random.1G",
    "stream.add",
    "stream.copy",
    "stream.scale",
    "stream.triad",
    "iobench.read.4M",
    "iobench.read.64M",
    "iobench.read.1G",
    "iobench.write.4M",
    "iobench.write.64M",
    "iobench.write.1G",
    "metadata.create",
    "metadata.delete",
)
"""Table I of the paper."""

# Load levels of the quick plan, most informative first, so that a limit keeps the best. Three
# intensities of the most contended resources, one of the others, and two mixes, because
# neighbours rarely load a single resource.
_Ladder = tuple[tuple[tuple[str, float], ...], ...]

_QUICK: _Ladder = (
    (("stream.triad", 1.0),),
    (("memory.streaming.LLChalf", 0.5),),
    (("iobench.read.4M", 1.0),),
    (("memory.random.LLChalf", 1.0),),
    (("iobench.write.4M", 1.0),),
    (("compute.float", 1.0),),
    (("stream.triad", 0.3),),
    (("memory.streaming.LLChalf", 1.0),),
    (("metadata.create", 1.0),),
    (("stream.triad", 0.5), ("iobench.read.4M", 0.5)),
    (("memory.random.1G", 1.0),),
    (("stream.triad", 0.6),),
    (("iobench.fsync", 1.0),),
    (("iobench.read.4M", 0.5),),
    (("memory.streaming.LLChalf", 0.25),),
    (("memory.streaming.LLChalf", 0.5), ("iobench.write.4M", 0.5)),
    (("os.switch", 1.0),),
    (("memory.fault", 1.0),),
    (("iobench.write.4M", 0.4),),
    (("iobench.read.4M", 0.2),),
    (("memory.streaming.8M", 1.0),),
    (("net.loopback", 1.0),),
)
# On a shared core the processor time that a neighbour takes matters most.
_QUICK_SHARED_CORE: _Ladder = (
    (("compute.float", 1.0),),
    (("iobench.read.4M", 1.0),),
    (("stream.triad", 1.0),),
    (("iobench.write.4M", 1.0),),
    (("compute.float", 0.5),),
    (("memory.streaming.LLChalf", 1.0),),
    (("stream.triad", 0.4),),
    (("metadata.create", 1.0),),
    (("compute.float", 0.2),),
    (("compute.float", 0.5), ("iobench.read.4M", 0.5)),
    (("iobench.fsync", 1.0),),
    (("memory.streaming.LLChalf", 0.4),),
    (("iobench.read.4M", 0.5),),
    (("stream.triad", 0.7),),
    (("os.switch", 1.0),),
    (("memory.fault", 1.0),),
    (("stream.triad", 0.5), ("iobench.write.4M", 0.5)),
    (("iobench.write.4M", 0.4),),
    (("memory.random.LLChalf", 1.0),),
    (("compute.float", 0.8),),
    (("memory.random.1G", 1.0),),
    (("net.loopback", 1.0),),
)
_QUICK_SOLO = 12
"""Runs alone of the whole quick plan: each target is over those of its minutes, and the noise of a
program is theirs."""

_FEW_SOLOS = 6
"""The most runs alone where the number of levels is limited."""

_HEAVY_LEVELS, _HEAVY_OBSERVATIONS = 3, 3
"""So many levels of the whole quick plan are the heaviest on what programs share, and so often
observed: heavy loads are those whose runs repeat worst, and whose predictions matter most."""

_SHARED = {"cross-core": ("cache", "memory"), "same-core": ("compute", "cache", "memory")}
"""The families whose full loads are the heaviest, by placement; cross-core for all others."""

_QUICK_SIGNATURES = 3
_PAPER_SIGNATURES = 3

WARM_UP_ITERATIONS = 1.5
"""Iterations of a looping neighbour before a run next to it: a whole one, and on average half of
the next one."""


def levels_of(
    name: str,
    inducers: Mapping[str, str],
    limit: int | None = None,
    *,
    placement: str = "cross-core",
) -> tuple[tuple[LoadLevel, ...], ...]:
    """Return the load levels of a plan, most informative first.

    Args:
        name: one of PLANS; the adaptive one chooses among the levels of the quick one.
        inducers: surrogates of this node that can induce load, with their resource family.
            A surrogate that is too large for the node (1G on a small machine) is replaced by
            the largest of its kind, or left out.
        limit: maximum number of levels.
    """
    if name in ("quick", ADAPTIVE):
        ladder = _QUICK_SHARED_CORE if placement == "same-core" else _QUICK
    elif name == "paper":
        ladder = tuple(((surrogate, 1.0),) for surrogate in PAPER_SURROGATES)
    else:
        raise InputError("unknown plan.", field="plan", value=name, allowed=", ".join(PLANS))
    if limit is not None and limit < 2:
        raise InputError("too few levels.", field="levels", value=limit, allowed="2 or more")
    levels = []
    for mix in ladder:
        resolved = tuple(
            LoadLevel(surrogate=available, family=inducers[available], intensity=intensity)
            for surrogate, intensity in mix
            if (available := _resolve(surrogate, inducers)) is not None
        )
        if len(resolved) == len(mix):
            levels.append(resolved)
    return tuple(levels[:limit])


def heaviest(ladder: Sequence[Mixed], placement: str) -> tuple[Mixed, ...]:
    """The levels that press hardest on what programs share: single ones at full intensity, the most
    informative first."""
    families = _SHARED.get(placement, _SHARED["cross-core"])
    heavy = [
        level
        for level in ladder
        if len(level) == 1 and level[0].intensity == 1.0 and level[0].family in families
    ]
    return tuple(heavy[:_HEAVY_LEVELS])


def _resolve(surrogate: str, inducers: Mapping[str, str]) -> str | None:
    if surrogate in inducers:
        return surrogate
    stem, _, size = surrogate.rpartition(".")
    if size != "1G":
        return None
    smaller = [
        (int(tail[:-1]), name)
        for name in inducers
        if name.rpartition(".")[0] == stem
        and (tail := name.rpartition(".")[2]).endswith("M")
        and tail[:-1].isdigit()
    ]
    return max(smaller)[1] if smaller else None


def make_plan(
    name: str,
    apps: Sequence[str],
    inducers: Mapping[str, str],
    *,
    placement: str,
    seed: int,
    suite: str = "standard",
    repeats: int = 1,
    levels: int | None = None,
    inducer_apps: Sequence[str] = (),
    unsigned: Sequence[str] = (),
) -> Plan:
    """Plan all steps of a campaign over ``apps``.

    The first steps run each application once on the idle node, to detect broken ones early.
    Then come the load levels in random order, two at a time with solo runs between them, which are
    spread evenly over the campaign, and the signatures.

    Args:
        repeats: observations of every load level (``paper``: times ten).
        levels: maximum number of load levels of the plan.
        inducer_apps: programs that are loads of all others, as often as the heaviest levels.
        unsigned: those of them without a signature, which is taken right after the first solo runs.
    """
    if repeats < 1:
        raise InputError("is out of range.", field="repeats", value=repeats, allowed="1 or more")
    if not apps:
        raise InputError("There is no application to profile.", field="app")
    rng = random.Random(seed)
    ladder = levels_of(name, inducers, levels, placement=placement)
    observations = repeats * (PAPER_OBSERVATIONS if name == "paper" else 1)
    if name == "paper":
        solos, signatures = PAPER_OBSERVATIONS * repeats, _PAPER_SIGNATURES
    elif levels is None:
        solos, signatures = _QUICK_SOLO * repeats, _QUICK_SIGNATURES
    else:
        solos, signatures = max(3, min(_FEW_SOLOS, levels // 2)), 1
    complete = name == "quick" and levels is None
    often = heaviest(ladder, placement) if complete else ()

    loads = [
        Load(level, repeat)
        for level in ladder
        for repeat in range(observations * (_HEAVY_OBSERVATIONS if level in often else 1))
    ]
    rng.shuffle(loads)
    others: list[Block] = []
    for neighbour in inducer_apps:
        for repeat in range(observations * (_HEAVY_OBSERVATIONS if complete else 1)):
            for part in parts([app for app in apps if app != neighbour], rng):
                others.append([Step(0, 0, "induced", app, (), repeat, neighbour) for app in part])
    for repeat in range(signatures):
        others.extend([Step(0, 0, "signature", app, (), repeat)] for app in apps)
    rng.shuffle(others)

    first: list[Block] = [[Step(0, 0, "signature", app)] for app in unsigned]
    steps = ordered(rounds_of(loads, apps, rng), others, apps, solos, rng, first)
    return Plan(name, placement, suite, seed, steps)


@dataclass(frozen=True, slots=True)
class AdaptivePlan(Plan):
    """A plan whose load levels are chosen as it is executed: ``choose`` is called with each block
    of induced runs when its turn comes, and returns its levels."""

    choose: Callable[[Sequence[Step]], tuple[LoadLevel, ...]] = lambda block: block[0].levels

    def blocks(self) -> Iterator[tuple[Step, ...]]:
        """Yield the groups of steps that share one load; levels are chosen at that moment."""
        for block in Plan.blocks(self):
            if block[0].kind == "induced":
                levels = self.choose(block)
                block = tuple(replace(step, levels=levels) for step in block)
            yield block


FEWEST_STARTS = 8
"""Starts of the smallest adaptive plan: a signature, two solo runs and two load levels."""


def make_adaptive_plan(
    apps: Sequence[str],
    ladder: Sequence[tuple[LoadLevel, ...]],
    choose: Callable[[Sequence[Step]], tuple[LoadLevel, ...]],
    *,
    runs: int,
    placement: str,
    seed: int,
    suite: str = "standard",
) -> AdaptivePlan:
    """Plan at most ``runs`` starts of each application, those of solo runs and of its signature
    included (``Plan.runs_of``), under levels that ``choose`` takes from ``ladder``.

    Raises:
        InputError: there is no application, or too few starts.
    """
    if runs < FEWEST_STARTS:
        raise InputError(
            "is out of range.", field="runs", value=runs, allowed=f"{FEWEST_STARTS} or more"
        )
    if not apps:
        raise InputError("There is no application to profile.", field="app")
    rng = random.Random(seed)
    left = runs - (SIGNATURE_ITERATIONS[1] + 1)
    solos = min(_QUICK_SOLO, max(2, left // 5))
    count = min(left - solos, len(ladder))
    loads = [Load(levels) for levels in ladder[:count]]
    # The same applications share all their loads, so that each load is new to all of them.
    rounds = rounds_of(loads, apps, rng, same_parts=True)
    signed: list[Block] = [[Step(0, 0, "signature", app)] for app in apps]
    rng.shuffle(signed)
    steps = ordered(rounds, signed, apps, solos, rng)
    return AdaptivePlan(ADAPTIVE, placement, suite, seed, steps, choose)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cost of a plan: planned runs by application, total seconds, bytes that loads and probes
    write, likely and at most: where loads slow the applications so far that their runs are ended,
    and each is disturbed and taken again as often as can be."""

    runs: Mapping[str, int]
    seconds: float
    most_seconds: float
    written_bytes: float
    most_written_bytes: float


def estimate(
    plan: Plan,
    *,
    app_seconds: Mapping[str, float],
    suite_seconds: float,
    quick_seconds: float = 0.0,
    suite_bytes: float = 0.0,
    write_bytes_per_second: Mapping[str, float],
    likely_share: float = 1.0,
    start_seconds: float = 1.0,
) -> Estimate:
    """Estimate the cost of a plan on a node that is otherwise idle.

    Args:
        app_seconds: solo seconds of each application and inducer application.
        suite_seconds: duration of the plan's suite.
        quick_seconds: duration of the quick suite that is timed before and after each run.
        suite_bytes: bytes written by one pass of the suite.
        write_bytes_per_second: by inducer, its highest write rate at intensity 1.
        likely_share: the usual rate over the highest one.
        start_seconds: time to start and settle a block.
    """
    apps = sorted({step.app for step in plan.steps})
    seconds = written = 0.0
    # What comes on top where every run under a load goes on until it is ended.
    longer = more = 0.0
    # What is taken again where everything is disturbed: steps without the start of their load.
    again = again_bytes = 0.0
    rates: dict[str, list[float]] = {app: [] for app in apps}
    for block in plan.blocks():
        time = start_seconds
        if (neighbour := block[0].neighbour) is not None:
            time += WARM_UP_ITERATIONS * app_seconds[neighbour] + quick_seconds
        elif block[0].kind != "signature":
            time += (suite_seconds if plan.suite != "quick" else 0.0) + quick_seconds
        steps_s = 0.0
        for step in block:
            if step.kind == "signature":
                steps_s += SIGNATURE_ITERATIONS[0] * app_seconds[step.app]
            else:
                steps_s += quick_seconds + app_seconds[step.app]
        time += steps_s
        seconds, again = seconds + time, again + steps_s
        rate = sum(
            write_bytes_per_second.get(level.surrogate, 0.0) * level.intensity * level.copies
            for level in block[0].levels
        )
        probed = suite_bytes * len(block)
        written += probed + rate * time
        again_bytes += probed + rate * steps_s
        for step in block:
            if step.kind == "induced":
                alone = app_seconds[step.app]
                longer += usual_limit_s([alone]) - alone
                more += rate * (usual_limit_s([alone]) - alone)
                rates[step.app].append(rate)
    for app in apps:
        beyond, bytes_written = most_overtime(app_seconds[app], rates[app])
        longer, more = longer + beyond, more + bytes_written
    return Estimate(
        {app: plan.runs_of(app) for app in apps},
        seconds,
        seconds + TAKES * longer + (TAKES - 1) * again,
        likely_share * written,
        written + TAKES * more + (TAKES - 1) * again_bytes,
    )
