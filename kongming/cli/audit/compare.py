"""``kongming audit compare``: test whether two sets of readings differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.shares import FRACTION
from kongming.quantities import count, per_cent

if TYPE_CHECKING:
    from kongming.audit.analysis.comparison import Comparison, Estimate
    from kongming.audit.analysis.pairing import Pairing

DIFFERS, UNDECIDED = 4, 3


@click.command(
    "compare",
    short_help="Test whether two sets of readings differ.",
    epilog=examples(
        "kongming audit compare before.parquet after.parquet",
        "kongming audit compare a.parquet b.parquet --by type --tolerance 10%",
    ),
)
@click.argument("a", metavar="A.parquet", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("b", metavar="B.parquet", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--by",
    metavar="KEY",
    help="Compare group by group: type, machine, kernel or tag:KEY.",
)
@click.option(
    "--tolerance",
    type=FRACTION,
    default="5%",
    show_default=True,
    help="Differences up to this count as equivalent.",
)
@click.option("--confidence", type=FRACTION, default="95%", show_default=True)
@options.wide_option
@options.json_option
def command(
    a: Path, b: Path, by: str | None, tolerance: float, confidence: float, as_json: bool
) -> int:
    """Test whether B differs from A: another instance, type, kernel or configuration.

    Exit status, by the programs (by the surrogates only if there is no program): 4 if one differs
    significantly by more than the tolerance, whether slower or faster; else 3 if one cannot be
    decided, or has no successful reading on a side; 0 if all are equivalent.
    """
    from kongming.cli.extras import require

    for module in ("numpy", "scipy", "pyarrow"):
        require("kongming audit compare", "predict", module)
    from kongming.audit.analysis.comparison import compare
    from kongming.audit.analysis.pairing import check_key, pair
    from kongming.audit.anonymising import apart
    from kongming.audit.readings import read_observations

    if by is not None:
        check_key(by)
    # Both are also read together, to refuse a recording that is in both.
    both = read_observations([a, b])
    pairing = pair(read_observations([a]), read_observations([b]), by)
    comparisons = compare(pairing.sides, tolerance, confidence)
    notes = _notes(pairing, comparisons)
    if (text := apart(both)) is not None:
        notes.append(text)
    if len(comparisons) > 1:
        notes.append(
            f"Each interval has {per_cent(100.0 * confidence, 'g')} confidence by itself. The "
            "verdicts allow "
            f"for {len(comparisons)} comparisons at once, so that an interval beyond the tolerance "
            "may still be 'cannot tell'.",
        )
    status = _status(pairing, comparisons)
    if as_json:
        output.emit_json(
            {
                "a": str(a),
                "b": str(b),
                "by": by,
                "tolerance_pct": 100.0 * tolerance,
                "confidence": confidence,
                "comparisons": [_document(comparison, pairing) for comparison in comparisons],
                "notes": notes,
                "status": status,
            }
        )
        return status
    _show(pairing, comparisons, notes)
    return status


def _status(pairing: Pairing, comparisons: Sequence[Comparison]) -> int:
    """Return the exit status: surrogates say something of the machine, and are nearly always
    equivalent, so that they do not vouch for a program."""
    programs = [c.verdict for c in comparisons if c.key[1] == "program"]
    lacking = [kind for _, kind, _ in pairing.unshared if kind == "program"]
    verdicts = set(programs or ([] if lacking else [c.verdict for c in comparisons]))
    if "differs" in verdicts:
        return DIFFERS
    return UNDECIDED if lacking or "cannot tell" in verdicts else 0


def _notes(pairing: Pairing, comparisons: Sequence[Comparison]) -> list[str]:
    notes = []
    if any("blocks" in (c.a.by, c.b.by) for c in comparisons if c.a and c.b):
        notes.append(
            "Fewer than three recordings on a side: the variation between recordings of the same "
            "machine is unknown and not included. Make three recordings of each to include it."
        )
    if any(map(_lacks_machines, comparisons)):
        notes.append(
            "Only two machines on a side: how much machines differ is hardly known. Record a "
            "third, or compare the same machines with --by machine."
        )
    if pairing.unmatched:
        notes.append(f"In only one of the two: {', '.join(pairing.unmatched)}.")
    if pairing.unshared:
        names = [f"{name} ({group})" if group else name for group, _, name in pairing.unshared]
        notes.append(
            "Without a successful reading on a side, or in different units: "
            + ", ".join(names)
            + "."
        )
    if pairing.unlike:
        reasons = [
            f"{name} ({group}) {reason}" if group else f"{name} {reason}"
            for (group, name), reason in pairing.unlike.items()
        ]
        notes.append(f"Left out: {'; '.join(reasons)}.")
    if pairing.identities:
        notes.append(
            "Not the same command, settings and executable in all recordings: "
            f"{', '.join(pairing.identities)}."
        )
    return notes


def _document(comparison: Comparison, pairing: Pairing) -> dict[str, Any]:
    group, kind, name = comparison.key
    return {
        "group": group or None,
        "kind": kind,
        "name": name,
        "verdict": comparison.verdict,
        "direction": _direction(comparison, pairing),
        "ratio": comparison.ratio,
        "ratio_lower": comparison.lower,
        "ratio_upper": comparison.upper,
        "shift_ratio": comparison.shift,
        "p_no_more_than_tolerance": comparison.p_within,
        "p_more_than_tolerance": comparison.p_beyond,
        "more_readings": comparison.more,
        "too_coarse": comparison.coarse,
        "a": _side(comparison.a),
        "b": _side(comparison.b),
    }


def _side(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"n": estimate.n, "median": estimate.median, "judged_by": estimate.by}


def _show(pairing: Pairing, comparisons: Sequence[Comparison], notes: Sequence[str]) -> None:
    grouped = any(comparison.key[0] for comparison in comparisons)
    columns = ("name", "A", "B", "B / A", "interval", "verdict")
    rows = []
    for comparison in comparisons:
        group, kind, name = comparison.key
        unit = pairing.names[kind, name].unit
        cells: list[object] = [name]
        cells += [
            _value(None if side is None else side.median, unit)
            for side in (comparison.a, comparison.b)
        ]
        lower, upper = comparison.lower, comparison.upper
        cells += [
            None if comparison.ratio is None else f"{comparison.ratio:.3f}",
            None if lower is None else f"{lower:.3f} to {upper:.3f}",
            _verdict(comparison, pairing),
        ]
        rows.append(([group] if grouped else []) + cells)
    heads = (("group",) if grouped else ()) + columns
    console = output.console()
    console.print(output.table(heads, rows, right=columns[1:5], minor=("A", "B")))
    for text in notes:
        console.print(f"note: {text}", markup=False)


def _lacks_machines(comparison: Comparison) -> bool:
    from kongming.audit.analysis.comparison import CLUSTERS

    sides = (comparison.a, comparison.b)
    return any(side and side.by == "machines" and side.units < CLUSTERS for side in sides)


def _direction(comparison: Comparison, pairing: Pairing) -> str | None:
    """Return whether B is slower or faster, where it differs."""
    if comparison.verdict != "differs" or comparison.ratio is None:
        return None
    longer = comparison.ratio > 1.0
    name = pairing.names[comparison.key[1], comparison.key[2]]
    return "slower" if longer == name.lower_is_better else "faster"


def _verdict(comparison: Comparison, pairing: Pairing) -> str:
    if comparison.verdict == "differs":
        return f"differs: B is {_direction(comparison, pairing)}"
    if comparison.verdict != "cannot tell":
        return comparison.verdict
    if _lacks_machines(comparison):
        return "cannot tell (needs a third machine)"
    if comparison.coarse:
        return "cannot tell (the metric is too coarse: its neighbouring values differ by too much)"
    if comparison.more is None:
        return "cannot tell (the difference is close to the tolerance)"
    return f"cannot tell (needs about {count(comparison.more, 'reading')} more per side)"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return output.format_seconds(value) if unit == "s" else f"{value:.3g} {unit}"
