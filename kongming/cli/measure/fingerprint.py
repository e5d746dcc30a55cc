"""``kongming fingerprint``: time the surrogates on the node as it is now."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.examples import examples

if TYPE_CHECKING:
    from kongming.probes.fingerprinting import Progress
    from kongming.records.fingerprint import Fingerprint, NodeFacts, Reading


@click.command(
    "fingerprint",
    epilog=examples("kongming fingerprint", "kongming fingerprint --suite quick --json > now.json"),
)
@click.option(
    "--suite",
    "suite_name",
    default="standard",
    show_default=True,
    metavar="quick|standard|full",
    help="How much to measure: 0.5 s, 2 s or up to 30 s.",
)
@click.option(
    "--surrogate", "names", metavar="NAME", multiple=True, help="Only this one (repeatable)."
)
@click.option("--cpu", type=int, metavar="N", help="CPU to measure on. Default: the first allowed.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=None,
    help="Folder on the file system that the I/O surrogates measure. Default: your cache folder "
    "(KONGMING_DIR).",
)
@options.anyway_option
@click.option("--no-store", is_flag=True, help="Do not store the fingerprint.")
@options.store_option
@options.wide_option
@options.json_option
def command(
    suite_name: str,
    names: Sequence[str],
    cpu: int | None,
    directory: Path | None,
    anyway: bool,
    no_store: bool,
    store_url: str | None,
    as_json: bool,
) -> int:
    """Measure the current cost of each surrogate on this node.

    The surrogates are timed in turn, in short rounds over the whole window. If this CPU and one
    that shares its cache are idle then, the coupling is measured too: how much a stream on the
    other one slows a pointer chase here. The fingerprint is stored. Exit status 1 if no surrogate
    could be measured.
    """
    from kongming.probes.measuring import disturbed_since, measuring
    from kongming.probes.node import allowed_cpu, node_facts
    from kongming.probes.suite import load_suite
    from kongming.profiling.runs.coupling import with_coupling

    node = node_facts()
    suite = load_suite(node, directory)
    # What is asked is checked before anybody is waited for.
    suite.names_of(suite_name)
    for name in names:
        suite.surrogate(name)
    with measuring("kongming fingerprint", (allowed_cpu(node, cpu),), anyway=anyway):
        began = time.time()
        fingerprint = measure(
            node, suite_name, names or None, cpu, directory, quiet=as_json, text="measuring"
        )
        if not names:
            fingerprint = with_coupling(fingerprint, suite, "kongming fingerprint")
        other = disturbed_since(began, (fingerprint.cpu,))
    if other is not None:
        warning = f"{other} measured on CPU {other.cpu} meanwhile."
        fingerprint = replace(fingerprint, warnings=(*fingerprint.warnings, warning))
    if as_json:
        # Printed before it is stored: a failing store must not lose the measurement.
        output.emit_json(fingerprint.to_dict())
    reference = None
    if not (no_store and as_json):
        reference = _stored(fingerprint, store_url, write=not no_store)
    if not as_json:
        show(fingerprint, reference, _moved(node, directory))
    for warning in fingerprint.warnings:
        _warn(warning)
    return 0 if fingerprint.times() else 1


def measure(
    node: NodeFacts,
    suite_name: str,
    names: Sequence[str] | None,
    cpu: int | None,
    directory: Path | None,
    *,
    quiet: bool,
    text: str,
) -> Fingerprint:
    """Take a fingerprint with a progress bar on stderr, or without one (``quiet``)."""
    from kongming.probes.fingerprinting import take_fingerprint

    if quiet:
        return take_fingerprint(node, suite_name, names, cpu, directory)
    with output.progress(text) as bar:

        def tell(progress: Progress) -> None:
            phase = "creating the I/O file" if progress.phase == "layout" else text
            bar.update(progress.done, total=progress.total, text=phase)

        return take_fingerprint(node, suite_name, names, cpu, directory, on_progress=tell)


def show(
    fingerprint: Fingerprint,
    reference: Mapping[str, float] | None,
    moved: Mapping[str, int | None],
) -> None:
    """Print a table: time and bandwidth of each surrogate, and the slowdown over ``reference``
    (seconds by name; empty if there is none, None if that is not known); then the coupling.
    ``moved`` are bytes that an operation moves."""
    from kongming.records.fingerprint import COUPLING

    columns = [
        "surrogate",
        "one operation",
        "mean",
        "median",
        "p90",
        "batches",
        "bandwidth or rate",
    ]
    columns += ["slowdown"] if reference else []
    rows: list[list[object]] = []
    failed = []
    for name, reading in fingerprint.surrogates.items():
        if not reading.ok or reading.seconds_per_op is None:
            failed.append((name, reading.error))
            continue
        seconds = reading.seconds_per_op
        times = [output.format_seconds(t) for t in (seconds, reading.median, reading.p90)]
        rate = _rate(seconds, moved.get(name)) + (" *" if reading.partial else "")
        rate += " ~" if _is_uneven(reading) else ""
        row: list[object] = [name, reading.op, *times, reading.n, rate]
        if reference:
            idle = reference.get(name)
            row.append(None if idle is None else f"{seconds / idle:.2f}")
        rows.append(row)
    console = output.console()
    where = f"{fingerprint.node.name}, CPU {fingerprint.cpu}, {fingerprint.node.cpu_model}"
    title = f"{where}: {fingerprint.suite} suite in {fingerprint.elapsed_s:.2f} s"
    right = ("mean", "median", "p90", "batches", "bandwidth or rate", "slowdown")
    minor = ("batches", "p90", "median", "one operation")
    if rows:
        console.print(output.table(columns, rows, title=title, right=right, minor=minor))
    for name, reason in failed:
        console.print(f"{name}: {reason}", style="red", markup=False)
    shown = [reading for reading in fingerprint.surrogates.values() if reading.ok]
    if any(reading.partial for reading in shown):
        console.print("* : timed over a part of its block, which is too large for its slice.")
    if any(map(_is_uneven, shown)):
        console.print(
            "~ : mean and median differ by more than a third: something else used this resource "
            "for a part of the time."
        )
    if COUPLING in fingerprint.passive:
        console.print(in_words(fingerprint.passive[COUPLING]))
    if reference is not None and not reference:
        console.print(
            "There is no idle reference yet. Measure one: kongming reference", style="dim"
        )


def in_words(coupling: float) -> str:
    """Say what the machine couples at this moment."""
    effect = "hardly slows" if coupling < 1.1 else "slows" if coupling < 2.0 else "greatly slows"
    return (
        f"Coupling {coupling:.2f}: a stream on another CPU that shares the cache {effect} a "
        "pointer chase over 8 MiB on this one now."
    )


def _is_uneven(reading: Reading) -> bool:
    mean, median = reading.seconds_per_op, reading.median
    return bool(mean and median) and not 0.75 < (mean or 1.0) / (median or 1.0) < 4.0 / 3.0


def _rate(seconds: float, moved: int | None) -> str:
    if moved:
        return output.format_bandwidth(moved / seconds)
    rate = 1.0 / seconds
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= factor:
            return f"{rate / factor:.3g} {unit}/s"
    return f"{rate:.3g} /s"


def _moved(node: NodeFacts, directory: Path | None) -> dict[str, int | None]:
    from kongming.probes.suite import load_suite

    return {known.name: known.bytes_per_op for known in load_suite(node, directory).surrogates}


def _stored(
    fingerprint: Fingerprint, store_url: str | None, *, write: bool
) -> Mapping[str, float] | None:
    """Store the fingerprint (``write``) and return the node's idle reference, empty if there is
    none. A failing store is only a warning on stderr, and None: the measurement is printed
    anyway."""
    try:
        from kongming.store import Store

        with Store.open(store_url, create=write, upgrade=write) as store:
            if write:
                store.put_node(fingerprint.node)
                store.add_fingerprint(fingerprint, purpose="adhoc")
            node_id, version = fingerprint.node.id, fingerprint.suite_version
            # The reference of the same CPU is preferred: cores of one node can differ.
            reference = store.reference(node_id, version, fingerprint.cpu)
            reference = reference or store.reference(node_id, version)
            return {} if reference is None else reference.times
    except Exception as error:  # a failing store must not lose the measurement
        failed = "The fingerprint could not be stored" if write else "The slowdowns are not known"
        _warn(f"{failed}: {error}")
        return None


def _warn(sentence: str) -> None:
    # Without rich, which takes a tenth of a second to import.
    click.secho(f"warning: {sentence}", fg="yellow", err=True)
