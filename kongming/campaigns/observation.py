"""The campaign that records one machine for hours into a file."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kongming import __version__
from kongming.campaigns.campaign import seed_of
from kongming.quantities import format_duration
from kongming.records.errors import IncompatibleError, InputError, MissingExtraError

if TYPE_CHECKING:
    from kongming.audit.journal import Header, Journal, Progress
    from kongming.audit.steps import Step
    from kongming.probes.suite import Suite
    from kongming.profiling.observing import Event, Site
    from kongming.records.application import Application
    from kongming.records.fingerprint import NodeFacts


@dataclass(frozen=True, slots=True)
class ObservationSettings:
    """The settings of a recording. ``command`` is stored in the file as its origin, ``salt`` (of
    ``anonymise``; default: random) is not."""

    file: Path
    for_s: float
    out: Path
    names: tuple[str, ...] = ()
    suite_name: str = "standard"
    every_s: float = 0.0
    pause_s: float = 0.0
    tags: Mapping[str, str] = field(default_factory=dict)
    resume: bool = False
    anonymise: bool = False
    salt: str | None = None
    metadata: bool = True
    cpu: int | None = None
    placement: str | None = None
    seed: int | None = None
    directory: Path | None = None
    command: tuple[str, ...] = ("kongming",)

    @property
    def journal(self) -> Path:
        """The journal of the steps so far, in the folder of the output."""
        return self.out.with_name(f"{self.out.name}.part")


class Bar(Protocol):
    def update(self, done: float | None = None, *, text: str | None = None) -> object:
        """``done`` seconds have passed; ``text`` describes the last measurement."""


class Watch(Protocol):
    """Output of progress."""

    def note(self, text: str) -> object: ...

    def warn(self, text: str) -> object: ...

    def progress(self) -> AbstractContextManager[Bar]: ...


@dataclass(slots=True)
class Observation:
    """The result of a recording. ``runs``, ``failed``, ``disturbed`` (fingerprints and runs beside
    another measurement) and ``dropped`` are of this command only."""

    out: str
    session: str
    programs: list[str]
    observed_s: float = 0.0
    rounds: int = 0
    runs: int = 0
    failed: int = 0
    disturbed: int = 0
    dropped: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    readings: int = 0
    bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def observe(settings: ObservationSettings, watch: Watch) -> Observation:
    """Observe until the time is over, and write the file; also on Ctrl-C.

    Raises:
        InputError: the file is complete, or another command writes it.
        IncompatibleError: the existing recording has other settings.
        StoreError: a measurement cannot be written; earlier ones are kept.
        BusyError: something else measures on these CPUs.
    """
    from kongming.audit.journal import Header, Journal
    from kongming.probes.suite import load_suite
    from kongming.profiling.appfile import load, select

    if find_spec("pyarrow") is None:
        # Checked now instead of after a day.
        raise MissingExtraError("kongming observe", "predict", "pyarrow")
    if not settings.out.absolute().parent.is_dir():
        raise InputError(
            "is in a folder that does not exist.", field="--out", value=str(settings.out)
        )
    if settings.out.exists() and not settings.journal.exists() and not settings.resume:
        raise InputError(
            f"{settings.out} is already complete.",
            hint="Give another --out, or --resume and a longer --for to continue it.",
        )
    apps = select(load(settings.file), settings.names)
    site = _site(settings, apps)
    suite = load_suite(site.node, site.io_dir)
    key = _key(settings, apps, site, suite)
    with Journal(settings.journal) as journal:
        resumed = journal.resume()
        if settings.out.exists():
            from kongming.audit.assembling import reopen, steps_in

            # Killed while it was filled from the file, it holds less than the file.
            if resumed is not None and resumed[1].position < steps_in(settings.out, resumed[0]):
                journal.clear()
                resumed = None
            if resumed is None:
                reopen(settings.out, journal)
                resumed = journal.resume()
        if resumed is None:
            header = Header(
                session=str(uuid.uuid4()),
                seed=seed_of(settings.seed),
                key=key,
                document=_document(settings, apps, site, suite),
            )
            journal.begin(header)
            resumed = journal.resume()
            assert resumed is not None, "it has just begun"
        header, progress = resumed
        _refuse_another(settings, header, key)
        done = Observation(str(settings.out), header.session, sorted(apps))
        done.observed_s = progress.elapsed_s
        names = suite.names_of(settings.suite_name)
        try:
            _record(settings, journal, apps, site, header, progress, names, done, watch)
        except BaseException:
            # On Ctrl-C too: here no child runs any more.
            _put_together(settings, done)
            if done.readings:
                watch.note(
                    f"{done.readings} readings so far are in {settings.out}; "
                    "the same command continues from here."
                )
            elif not progress.position:
                # A command that was refused binds none with other settings to its own.
                settings.journal.unlink(missing_ok=True)
            raise
        _put_together(settings, done)
        if done.observed_s >= settings.for_s:
            settings.journal.unlink(missing_ok=True)
    return done


def _put_together(settings: ObservationSettings, done: Observation) -> None:
    from kongming.audit.anonymising import Salt
    from kongming.audit.assembling import assemble

    salt = Salt() if settings.salt is None else Salt(settings.salt)
    done.readings = assemble(
        settings.journal, settings.out, salt=salt if settings.anonymise else None
    )
    done.bytes = settings.out.stat().st_size if done.readings else 0


def _record(
    settings: ObservationSettings,
    journal: Journal,
    apps: Mapping[str, Application],
    site: Site,
    header: Header,
    progress: Progress,
    surrogates: tuple[str, ...],
    done: Observation,
    watch: Watch,
) -> None:
    from kongming.probes.measuring import measuring
    from kongming.profiling.observing import Pace, observe

    begun: float | None = None
    position = progress.position
    first_round = last_round = progress.round

    def elapsed() -> float:
        return progress.elapsed_s if begun is None else time.monotonic() - begun

    def over() -> bool:
        nonlocal begun
        if begun is None:
            # The first event sets up the applications.
            begun = time.monotonic() - progress.elapsed_s
        return elapsed() >= settings.for_s

    if progress.position:
        watch.note(
            f"continuing after {format_duration(progress.elapsed_s)} with round {first_round}"
        )
    events = observe(
        apps,
        site,
        seed=header.seed,
        pace=Pace(settings.every_s, settings.pause_s),
        first_round=first_round,
        stop_when=over,
    )
    cpus = {cpu for taken in site.cpus.values() for cpu in taken}
    with measuring("kongming observe", cpus), watch.progress() as bar, closing(events):
        for event in events:
            step = _step(event, position, elapsed(), surrogates)
            if step is not None:
                journal.add(_marked(step, cpus, done))
                position += 1
                done.observed_s = elapsed()
                if step.round > last_round:
                    journal.sync()
                    last_round = step.round
                done.rounds = step.round - first_round + 1
            left = format_duration(max(0.0, settings.for_s - elapsed()))
            bar.update(
                min(elapsed(), settings.for_s), text=f"{_seen(event, done, watch)}, {left} left"
            )
    done.observed_s = elapsed()
    journal.sync()


def _step(
    event: Event, position: int, elapsed_s: float, surrogates: tuple[str, ...]
) -> Step | None:
    """Return the step of an event; None if it is not a step."""
    from kongming.audit import steps
    from kongming.profiling.observing import Observed, Ran

    if isinstance(event, Observed):
        if event.fingerprint is None:
            readings = steps.of_failure(surrogates, event.error or "it failed")
        else:
            readings = steps.of_fingerprint(event.fingerprint)
    elif isinstance(event, Ran):
        outcome = event.outcome
        readings = steps.of_run(
            event.app.name, outcome.metric, event.app.metric_unit, outcome.error, outcome.signals
        )
    else:
        return None
    return steps.Step(event.at, position, event.round, event.cpu, elapsed_s, readings)


def _marked(step: Step, cpus: Collection[int], done: Observation) -> Step:
    """Return the step, with a signal and counted if something else was measured on these CPUs
    meanwhile."""
    from kongming.audit.steps import of_signals
    from kongming.probes.measuring import disturbed_since
    from kongming.records import moments
    from kongming.records.run import DISTURBED

    if disturbed_since(moments.unix(step.at), cpus) is None:
        return step
    done.disturbed += 1
    return replace(step, readings=(*step.readings, *of_signals({DISTURBED: 1.0})))


def _seen(event: Event, done: Observation, watch: Watch) -> str:
    """Count an event, and return a short description."""
    from kongming.profiling.observing import Observed, Ran, Waiting

    if isinstance(event, Waiting):
        return f"waiting {event.seconds:.0f} s"
    if isinstance(event, Observed):
        return f"round {event.round}: {event.app}"
    if isinstance(event, Ran):
        done.runs += 1
        name, outcome = event.app.name, event.outcome
        if not outcome.ok:
            done.failed += 1
            done.reasons[name] = outcome.error or "it has no metric"
            return f"round {event.round}: {name} failed"
        return f"round {event.round}: {name} took {outcome.wall_s:.3g} s"
    done.dropped[event.app] = event.reason
    watch.warn(f"{event.app} is left out: {event.reason}")
    return f"{event.app} is left out"


def _site(settings: ObservationSettings, apps: Mapping[str, Application]) -> Site:
    from kongming.probes.folders import work_folder
    from kongming.probes.node import node_facts
    from kongming.profiling.observing import Site

    directory = work_folder(settings.directory)
    if settings.placement is None:
        node = node_facts()
        cpus = {name: _seats(node, settings.cpu, app.cpus) for name, app in apps.items()}
        return Site(node, cpus, directory, settings.suite_name)
    from kongming.campaigns.this_node import measured_node
    from kongming.profiling.plans.placement import choose

    if settings.cpu is not None:
        raise InputError("is chosen by --placement: give one of them.", field="--cpu")
    node = measured_node(settings.placement, [app.cpus for app in apps.values()])
    cpus = {name: choose(node, settings.placement, app.cpus).app for name, app in apps.items()}
    return Site(node, cpus, directory, settings.suite_name)


def _seats(node: NodeFacts, cpu: int | None, count: int) -> tuple[int, ...]:
    """Return ``cpu``, or the first allowed one, and the following ones. Raises InputError."""
    from kongming.probes.node import allowed_cpu

    first = allowed_cpu(node, cpu)
    others = [other for other in node.cpus if other != first]
    others.sort(key=lambda other: (other < first, other))
    if count > len(node.cpus):
        raise InputError(
            "This node has fewer CPUs.",
            field="cpus",
            value=count,
            allowed=f"1 to {len(node.cpus)}",
        )
    return (first, *others[: count - 1])


def _key(
    settings: ObservationSettings, apps: Mapping[str, Application], site: Site, suite: Suite
) -> dict[str, Any]:
    """Return the settings that must be equal to continue a recording."""
    from kongming.profiling.plans.identity import identities_of

    return {
        "machine": site.node.id,
        "suite": settings.suite_name,
        "suite version": suite.version,
        "programs": identities_of(apps),
        "CPUs": {name: list(site.cpus[name]) for name in sorted(apps)},
        **({} if settings.seed is None else {"seed": settings.seed}),
    }


def _refuse_another(settings: ObservationSettings, header: Header, key: Mapping[str, Any]) -> None:
    # Without a given seed, the stored one is used.
    different = [name for name in header.differences(key) if name != "seed"]
    if settings.seed is not None and settings.seed != header.seed:
        different.append("seed")
    if different:
        raise IncompatibleError(
            f"{settings.out} was recorded with another {', another '.join(different)}.",
            hint=f"Give another --out, or remove {settings.journal.name} to start again.",
        )


def _document(
    settings: ObservationSettings, apps: Mapping[str, Application], site: Site, suite: Suite
) -> dict[str, Any]:
    """Return the session in the form of the observation file."""
    from kongming.probes.machine import cloud_instance, microcode
    from kongming.profiling.plans.identity import identity
    from kongming.records import moments

    facts = site.node.to_dict()
    facts["hardware"]["microcode"] = microcode()
    instance = cloud_instance() if settings.metadata else None
    return {
        "machine": site.node.id,
        "started_at": moments.now(),
        "suite": settings.suite_name,
        "suite_version": suite.version,
        "kongming_version": __version__,
        "command": list(settings.command),
        "facts": facts,
        "instance": None if instance is None else instance.to_dict(),
        "tags": dict(settings.tags),
        "surrogates": {
            known.name: {"family": known.family, "op": known.op, "sizes": suite.sizes_of(known)}
            for known in suite.surrogates
        },
        "programs": {
            name: {
                "identity": identity(app),
                "command": app.command if isinstance(app.command, str) else list(app.command),
                "unit": app.metric_unit,
                "better": app.better,
                "kind": app.kind,
                "cpus": app.cpus,
            }
            for name, app in sorted(apps.items())
        },
    }
