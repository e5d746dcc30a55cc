"""Carries a recording out: what it is, where it goes on, what is shown of it, and its file."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming import __version__
from kongming.cli import output
from kongming.cli.campaign import seed_of
from kongming.errors import IncompatibleError, InputError, MissingExtraError

if TYPE_CHECKING:
    from kongming.application import Application
    from kongming.audit.journal import Header, Journal, Progress
    from kongming.audit.steps import Step
    from kongming.fingerprint import NodeFacts
    from kongming.probes.suite import Suite
    from kongming.profiling.observing import Event, Site


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a recording, as the options of ``kongming observe`` say it."""

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
    metadata: bool = True
    cpu: int | None = None
    placement: str | None = None
    seed: int | None = None
    directory: Path | None = None

    @property
    def journal(self) -> Path:
        """The steps so far, beside the output."""
        return self.out.with_name(f"{self.out.name}.part")


@dataclass(slots=True)
class Done:
    """What came of it. ``runs``, ``failed`` and ``dropped`` are of this command alone."""

    out: str
    session: str
    programs: list[str]
    observed_s: float = 0.0
    rounds: int = 0
    runs: int = 0
    failed: int = 0
    dropped: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    readings: int = 0
    bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def observe(asked: Asked) -> Done:
    """Observe until the time is over, and put the file together; also on the way out of Ctrl-C.

    Raises:
        InputError: the file is there and complete, or is written to by another command.
        IncompatibleError: what is there was recorded of something else.
        StoreError: what was measured cannot be written; what came before is kept.
    """
    from kongming.audit.journal import Header, Journal
    from kongming.probes.suite import load_suite
    from kongming.profiling.appfile import load, select

    if find_spec("pyarrow") is None:
        # Known now rather than after a day.
        raise MissingExtraError("kongming observe", "predict", "pyarrow")
    if not asked.out.absolute().parent.is_dir():
        raise InputError("is in a folder that does not exist.", field="--out", found=str(asked.out))
    if asked.out.exists() and not asked.journal.exists() and not asked.resume:
        raise InputError(
            f"{asked.out} is complete already.",
            hint="Give another --out, or --resume and a longer --for to go on with it.",
        )
    apps = select(load(asked.file), asked.names)
    site = _site(asked, apps)
    suite = load_suite(site.node, site.io_dir)
    key = _key(asked, apps, site, suite)
    with Journal(asked.journal) as journal:
        found = journal.resume()
        if found is None and asked.out.exists():
            from kongming.audit.assembling import reopen

            reopen(asked.out, journal)
            found = journal.resume()
        if found is None:
            header = Header(
                session=str(uuid.uuid4()),
                seed=seed_of(asked.seed),
                key=key,
                document=_document(asked, apps, site, suite),
            )
            journal.begin(header)
            found = journal.resume()
            assert found is not None, "it was begun just now"
        header, progress = found
        _refuse_another(asked, header, key)
        done = Done(str(asked.out), header.session, sorted(apps))
        done.observed_s = progress.elapsed_s
        names = suite.names_of(asked.suite_name)
        try:
            _record(asked, journal, apps, site, header, progress, names, done)
        except BaseException:
            # Ctrl-C as well: by here nothing runs any more.
            _put_together(asked, done)
            if done.readings:
                output.error_console().print(
                    f"{done.readings} readings so far are in {asked.out}; "
                    "the same command goes on from here.",
                    markup=False,
                )
            raise
        _put_together(asked, done)
        if done.observed_s >= asked.for_s:
            asked.journal.unlink(missing_ok=True)
    return done


def _put_together(asked: Asked, done: Done) -> None:
    from kongming.audit.anonymising import Salt
    from kongming.audit.assembling import assemble

    done.readings = assemble(asked.journal, asked.out, salt=Salt() if asked.anonymise else None)
    done.bytes = asked.out.stat().st_size if done.readings else 0


def _record(
    asked: Asked,
    journal: Journal,
    apps: Mapping[str, Application],
    site: Site,
    header: Header,
    progress: Progress,
    surrogates: tuple[str, ...],
    done: Done,
) -> None:
    from kongming.profiling.observing import Pace, observe

    begun: float | None = None
    position = progress.position
    first_round = last_round = progress.round

    def elapsed() -> float:
        return progress.elapsed_s if begun is None else time.monotonic() - begun

    def over() -> bool:
        nonlocal begun
        if begun is None:
            # Asked for the first time: the applications are set up.
            begun = time.monotonic() - progress.elapsed_s
        return elapsed() >= asked.for_s

    if progress.position:
        output.error_console().print(
            f"going on after {output.format_duration(progress.elapsed_s)} with round {first_round}"
        )
    events = observe(
        apps,
        site,
        seed=header.seed,
        pace=Pace(asked.every_s, asked.pause_s),
        first_round=first_round,
        stop_when=over,
    )
    with output.progress("observing", asked.for_s) as bar, closing(events):
        for event in events:
            step = _step(event, position, elapsed(), surrogates)
            if step is not None:
                journal.add(step)
                position += 1
                done.observed_s = elapsed()
                if step.round > last_round:
                    journal.sync()
                    last_round = step.round
                done.rounds = step.round - first_round + 1
            left = output.format_duration(max(0.0, asked.for_s - elapsed()))
            bar.update(min(elapsed(), asked.for_s), text=f"{_seen(event, done)}, {left} left")
    done.observed_s = elapsed()
    journal.sync()


def _step(
    event: Event, position: int, elapsed_s: float, surrogates: tuple[str, ...]
) -> Step | None:
    """The step to keep of an event; None where it is none."""
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
            event.app.name, outcome.metric, event.app.metric_unit, outcome.error, event.passive
        )
    else:
        return None
    return steps.Step(event.at, position, event.round, event.cpu, elapsed_s, readings)


def _seen(event: Event, done: Done) -> str:
    """Counts an event, and says in a few words what it was."""
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
            done.reasons[name] = outcome.error or "it yields no metric"
            return f"round {event.round}: {name} failed"
        return f"round {event.round}: {name} took {outcome.wall_s:.3g} s"
    done.dropped[event.app] = event.reason
    output.error_console().print(
        f"{event.app} is left out: {event.reason}", style="red", markup=False
    )
    return f"{event.app} is left out"


def _site(asked: Asked, apps: Mapping[str, Application]) -> Site:
    from kongming.probes.folders import io_folder
    from kongming.probes.node import node_facts
    from kongming.profiling.observing import Site

    directory = io_folder(asked.directory)
    if asked.placement is None:
        node = node_facts()
        cpus = {name: _seats(node, asked.cpu, app.cpus) for name, app in apps.items()}
        return Site(node, cpus, directory, asked.suite_name)
    from kongming.cli.node import measured_node
    from kongming.profiling.placement import choose

    if asked.cpu is not None:
        raise InputError("is chosen by --placement: give one of them.", field="--cpu")
    node = measured_node(asked.placement)
    cpus = {name: choose(node, asked.placement, app.cpus).app for name, app in apps.items()}
    return Site(node, cpus, directory, asked.suite_name)


def _seats(node: NodeFacts, cpu: int | None, count: int) -> tuple[int, ...]:
    """``cpu``, or the first allowed one, and those after it. Raises InputError."""
    from kongming.probes.node import allowed_cpu

    first = allowed_cpu(node, cpu)
    others = [other for other in node.cpus if other != first]
    others.sort(key=lambda other: (other < first, other))
    if count > len(node.cpus):
        raise InputError(
            "There are not so many CPUs here.",
            field="cpus",
            found=count,
            allowed=f"1 to {len(node.cpus)}",
        )
    return (first, *others[: count - 1])


def _key(asked: Asked, apps: Mapping[str, Application], site: Site, suite: Suite) -> dict[str, Any]:
    """What has to be the same for a recording to go on."""
    from kongming.profiling.identity import identity

    return {
        "machine": site.node.id,
        "suite": asked.suite_name,
        "suite version": suite.version,
        "programs": {name: identity(app) for name, app in sorted(apps.items())},
        "CPUs": {name: list(site.cpus[name]) for name in sorted(apps)},
        **({} if asked.seed is None else {"seed": asked.seed}),
    }


def _refuse_another(asked: Asked, header: Header, key: Mapping[str, Any]) -> None:
    # A seed that was drawn, or not named this time, holds.
    different = [name for name in header.differences(key) if name != "seed"]
    if asked.seed is not None and asked.seed != header.seed:
        different.append("seed")
    if different:
        raise IncompatibleError(
            f"{asked.out} was begun with another {', another '.join(different)}.",
            hint=f"Give another --out, or remove {asked.journal.name} to begin anew.",
        )


def _document(
    asked: Asked, apps: Mapping[str, Application], site: Site, suite: Suite
) -> dict[str, Any]:
    """The session as the observation file describes it."""
    from kongming.probes.machine import cloud_instance, microcode
    from kongming.probes.recording import utc_now
    from kongming.profiling.identity import identity

    facts = site.node.to_dict()
    facts["hardware"]["microcode"] = microcode()
    instance = cloud_instance() if asked.metadata else None
    return {
        "machine": site.node.id,
        "started_at": utc_now(),
        "suite": asked.suite_name,
        "suite_version": suite.version,
        "kongming_version": __version__,
        "command": ["kongming", *sys.argv[1:]],
        "facts": facts,
        "instance": None if instance is None else instance.to_dict(),
        "tags": dict(asked.tags),
        "surrogates": {
            known.name: {"family": known.family, "op": known.op} for known in suite.surrogates
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
