"""``kongming audit compare``: do two sets of readings differ, by how much, how surely?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kongming.cli import options, output
from kongming.cli.percent import PERCENT

if TYPE_CHECKING:
    from kongming.audit.comparing import Comparison, Estimate
    from kongming.audit.sides import Pairing

DIFFERS, NOTHING = 4, 3


@click.command("compare", short_help="Whether two sets of readings differ, and how surely.")
@click.argument("a", metavar="A.parquet", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("b", metavar="B.parquet", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--by",
    metavar="KEY",
    help="type, machine, kernel or tag:KEY: compare like with like, group by group.",
)
@click.option(
    "--tolerance",
    type=PERCENT,
    default="5%",
    show_default=True,
    help="A smaller difference is none.",
)
@click.option("--confidence", type=PERCENT, default="95%", show_default=True)
@options.json_option
def command(
    a: Path, b: Path, by: str | None, tolerance: float, confidence: float, as_json: bool
) -> int:
    """Does B differ from A: another instance, type, kernel or configuration?

    Exit status: 4 where a name differs by more than the tolerance, beyond doubt; 3 where nothing
    can be told of any name; else 0.
    """
    from kongming.cli.extras import require

    for module in ("numpy", "scipy", "pyarrow"):
        require("kongming audit compare", "predict", module)
    from kongming.audit.comparing import compare
    from kongming.audit.grouping import check_key
    from kongming.audit.readings import read_observations
    from kongming.audit.sides import pair

    if by is not None:
        check_key(by)
    # Both at once too: a recording that is in both is refused.
    read_observations([a, b])
    pairing = pair(read_observations([a]), read_observations([b]), by)
    found = compare(pairing.sides, tolerance, confidence)
    notes = _notes(pairing, found)
    verdicts = {one.verdict for one in found}
    status = DIFFERS if "differs" in verdicts else NOTHING if verdicts == {"cannot tell"} else 0
    if as_json:
        output.emit_json(
            {
                "a": str(a),
                "b": str(b),
                "by": by,
                "tolerance_pct": 100.0 * tolerance,
                "confidence": confidence,
                "comparisons": [_document(one) for one in found],
                "notes": notes,
                "status": status,
            }
        )
        return status
    _show(pairing, found, notes)
    return status


def _notes(pairing: Pairing, found: Sequence[Comparison]) -> list[str]:
    notes = []
    if any("blocks" in (one.a.by, one.b.by) for one in found if one.a and one.b):
        notes.append(
            "Fewer than three recordings on a side: what recordings of one and the same thing "
            "differ by is not known, and not counted. Record anew three times to count it."
        )
    if pairing.unmatched:
        notes.append(f"Only one of both has: {', '.join(pairing.unmatched)}.")
    if pairing.only:
        notes.append(f"Read on one side alone: {', '.join(pairing.only)}.")
    return notes


def _document(one: Comparison) -> dict[str, Any]:
    group, kind, name = one.key
    return {
        "group": group or None,
        "kind": kind,
        "name": name,
        "verdict": one.verdict,
        "ratio": one.ratio,
        "ratio_lower": one.lower,
        "ratio_upper": one.upper,
        "shift_ratio": one.shift,
        "p_no_more_than_tolerance": one.p_beyond,
        "p_more_than_tolerance": one.p_apart,
        "more_readings": one.more,
        "a": _side(one.a),
        "b": _side(one.b),
    }


def _side(one: Estimate | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {"n": one.n, "median": one.median, "judged_by": one.by}


def _show(pairing: Pairing, found: Sequence[Comparison], notes: Sequence[str]) -> None:
    grouped = any(one.key[0] for one in found)
    columns = ("name", "A", "B", "B / A", "interval", "verdict")
    rows = []
    for one in found:
        group, kind, name = one.key
        unit = pairing.names[kind, name].unit
        cells: list[object] = [name]
        cells += [_value(None if side is None else side.median, unit) for side in (one.a, one.b)]
        cells += [
            None if one.ratio is None else f"{one.ratio:.3f}",
            None if one.lower is None else f"{one.lower:.3f} to {one.upper:.3f}",
            _verdict(one),
        ]
        rows.append(([group] if grouped else []) + cells)
    heads = (("group",) if grouped else ()) + columns
    console = output.console()
    console.print(output.table(heads, rows, right=columns[1:5]))
    for text in notes:
        console.print(f"note: {text}", markup=False)


def _verdict(one: Comparison) -> str:
    if one.verdict != "cannot tell":
        return one.verdict
    if one.more is None:
        return "cannot tell (it is at the tolerance)"
    return f"cannot tell (about {one.more} more readings a side)"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return output.format_seconds(value) if unit == "s" else f"{value:.3g} {unit}"
