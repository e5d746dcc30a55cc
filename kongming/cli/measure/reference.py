"""``kongming reference``: measure the cost of the surrogates on the idle node."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION_OR_NONE
from kongming.cli.examples import examples
from kongming.quantities import count, per_cent

KEPT_FOR_S = 24 * 3600.0
"""Maximum age of the readings of an interrupted command."""


@click.command(
    "reference",
    epilog=examples("kongming reference", "kongming reference --readings 20 --spread 1h"),
)
@click.option(
    "--readings", type=int, default=10, show_default=True, help="Number of readings (10 or more)."
)
@click.option(
    "--spread",
    type=DURATION_OR_NONE,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="Time from the start of the first reading to that of the last.",
)
@click.option(
    "--suite", "suite_name", default="standard", show_default=True, metavar="quick|standard|full"
)
@click.option("--cpu", type=int, metavar="N", help="CPU to measure on. Default: the first allowed.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder of the I/O surrogates, as in 'kongming fingerprint'.",
)
@options.store_option
@options.wide_option
@options.json_option
def command(
    readings: int,
    spread: float,
    suite_name: str,
    cpu: int | None,
    directory: Path | None,
    store_url: str | None,
    as_json: bool,
) -> int:
    """Measure the cost of the surrogates on this node while nothing else runs.

    Take readings spread over time and store a low quantile of each surrogate: a single reading
    would include unseen neighbours that come and go. Surrogates of other suites keep the idle times
    that they have; give them the same --dir. Each reading is stored at once; after Ctrl-C the same
    command continues from there. It ends where another measurement runs on this CPU (--anyway)
    during a reading, which is not used.
    """
    from kongming.cli.measure.fingerprint import measure
    from kongming.probes.measuring import disturbed_since, measuring
    from kongming.probes.node import allowed_cpu, node_facts
    from kongming.probes.reference import MIN_READINGS, idle_reference
    from kongming.probes.suite import load_suite
    from kongming.records import moments
    from kongming.records.errors import InputError, MeasurementError, ProbeError
    from kongming.store import Store

    if readings < MIN_READINGS:
        raise InputError(
            "are too few for a reference.",
            field="readings",
            value=readings,
            allowed=f"{MIN_READINGS} or more",
        )
    if not 0.0 <= spread <= KEPT_FOR_S:
        raise InputError("is out of range.", field="spread", value=spread, allowed="0 to 86400 s")
    node = node_facts()
    cpu = allowed_cpu(node, cpu)
    suite = load_suite(node, directory)
    version, names = suite.version, suite.names_of(suite_name)
    with Store.open(store_url) as store, measuring("kongming reference", (cpu,)):
        store.put_node(node)
        last = store.reference(node.id, version, cpu)
        since = max(moments.ago(KEPT_FOR_S), "" if last is None else last.taken_at)
        known = [
            reading
            for reading in store.fingerprints(
                node_id=node.id, suite_version=version, purpose="reference", cpu=cpu
            )
            if reading.started_at > since and reading.suite == suite_name
        ]
        missing = max(1, readings - len(known))
        began = time.monotonic()
        try:
            for index in range(missing):
                due = began + spread * index / max(1, readings - 1)
                time.sleep(max(0.0, due - time.monotonic()))
                text = f"reading {len(known) + 1} of {max(readings, len(known) + 1)}"
                started = time.time()
                taken = measure(node, suite_name, None, cpu, directory, quiet=as_json, text=text)
                if (other := disturbed_since(started, (cpu,))) is not None:
                    raise MeasurementError(
                        f"{other} measured on CPU {cpu} during a reading, which is left out: this "
                        "CPU was not idle.",
                        hint=f"{len(known)} of {readings} readings are stored; the same command "
                        "continues there. Run it again when the other one has ended.",
                    )
                if not taken.times():
                    reason = next(iter(taken.surrogates.values())).error
                    raise ProbeError(f"No surrogate could be measured: {reason}")
                store.add_fingerprint(taken, purpose="reference")
                known.append(taken)
        except KeyboardInterrupt:
            output.error_console().print(
                f"{len(known)} of {readings} readings are stored; the same command continues there."
            )
            raise
        times = idle_reference(known)
        # A reading of a surrogate means the same in each suite that has it.
        others = {
            name: seconds
            for name, seconds in ({} if last is None else last.times).items()
            if name not in names
        }
        taken_at = moments.now()
        store.put_reference(node.id, version, cpu, {**others, **times}, len(known), taken_at)
    spreads = {
        name: _spread_pct([reading.times()[name] for reading in known if name in reading.times()])
        for name in times
    }
    if as_json:
        output.emit_json(
            {
                "node_id": node.id,
                "suite": suite_name,
                "suite_version": version,
                "cpu": cpu,
                "readings": len(known),
                "taken_at": taken_at,
                "surrogates": {
                    name: {"seconds_per_op": seconds, "spread_pct": spreads[name]}
                    for name, seconds in times.items()
                },
                "not_measured": others,
            }
        )
        return 0
    columns = ("surrogate", "idle time per operation", "spread")
    rows = [
        (name, output.format_seconds(seconds), per_cent(spreads[name]))
        for name, seconds in times.items()
    ]
    title = f"{node.name}, CPU {cpu}: {len(known)} readings"
    console = output.console()
    console.print(output.table(columns, rows, title=title, right=columns[1:]))
    console.print(
        "Spread: how far the slowest reading lies above the fastest. 'kongming fingerprint' now "
        "shows slowdowns."
    )
    if others:
        files = sum(known.has_file and known.name in others for known in suite.surrogates)
        where = f", for {files} of them in the I/O folder (--dir) of that time"
        console.print(
            f"{count(len(others), 'surrogate')} of other suites: their idle times are as "
            f"before{where if files else ''}."
        )
    return 0


def _spread_pct(times: Sequence[float]) -> float:
    return 100.0 * (max(times) / min(times) - 1.0)
