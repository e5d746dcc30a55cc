"""The blocks of signatures: the suite, timed next to a program that loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from kongming.profiling.blocks.state import UNKNOWN_ITERATION_S, CampaignState
from kongming.profiling.blocks.timed_run import unmeasured
from kongming.profiling.cautions import seated_on_one
from kongming.profiling.events import Event
from kongming.profiling.plans.steps import Step
from kongming.profiling.runs.retake import least_disturbed
from kongming.profiling.runs.settle import settle
from kongming.profiling.runs.signature import take_signature
from kongming.profiling.site import Site, sharing
from kongming.records.errors import MeasurementError
from kongming.records.fingerprint import Fingerprint
from kongming.records.run import WAITING_SHARE, Signature


def signature_block(state: CampaignState, steps: Sequence[Step]) -> Iterator[Event]:
    """Time the suite while each program loops, again where somebody else was there; a program that
    fails meanwhile has a failed run instead of a signature."""
    for step in steps:
        settle()
        yield state.doing(f"timing the suite co-located with {step.app}", step.app)
        with sharing(state.sites[step.app]) as site:
            coupling, site = state.couplings.read(site)
            try:
                fingerprint, iterations = yield from least_disturbed(
                    partial(_take, state, step.app, site),
                    partial(_excess, state, step.app),
                    state.doing(
                        f"the suite co-located with {step.app}, again: somebody else was there",
                        step.app,
                    ),
                )
            except MeasurementError as error:
                state.completed += 1
                yield unmeasured(state, site, step, str(error))
                continue
        state.completed += 1
        signature = Signature(
            app=step.app,
            identity=state.identities[step.app],
            node_id=site.node.id,
            placement=site.placement,
            fingerprint=replace(
                _with_signals(fingerprint, state.waits.get(step.app, ()), coupling),
                warnings=(*fingerprint.warnings, *seated_on_one(state.apps[step.app])),
            ),
            iterations=iterations,
            campaign=state.campaign,
            step=step.index,
        )
        state.signatures.setdefault(step.app, []).append(signature)
        yield signature


def _take(state: CampaignState, app: str, site: Site) -> tuple[Fingerprint, int]:
    taken = take_signature(
        state.as_neighbour(app),
        site,
        state.names,
        suite=state.plan.suite,
        iteration_s=state.walls.get(app, UNKNOWN_ITERATION_S),
    )
    # Each take writes, whether it is the one that counts or not.
    state.writing.add_fingerprint(taken[0])
    return taken


def _excess(state: CampaignState, app: str, taken: tuple[Fingerprint, int]) -> float:
    # Among its own: the interrupts of a program's device do slow arithmetic.
    return state.watch.excess(app, (taken[0],))


def _with_signals(
    fingerprint: Fingerprint, waits: Sequence[float], coupling: Mapping[str, float]
) -> Fingerprint:
    """Return the signature's fingerprint with how much the program waits, if that is known, and
    the coupling before it."""
    waiting = {WAITING_SHARE: median(waits)} if waits else {}
    return replace(fingerprint, passive={**fingerprint.passive, **waiting, **coupling})
