"""Other machines than those that the runs of a table had: they are not mixed in one table."""

from __future__ import annotations

from collections.abc import Sequence

from kongming.records.errors import InputError

__all__ = ["GROUP", "PROCESS", "mixed_machines", "on_groups", "refuse_other_machines"]

GROUP = "cgroup"
"""How a run was measured on machines that are control groups: this, and the CPUs of each.
Earlier tables lack the CPUs."""

PROCESS = "process"
"""How a run was measured on machines that are processes, where no groups could be written."""

_RUNNERS = {GROUP: "local", PROCESS: "local", "slurm": "slurm", "kubernetes": "kubernetes"}
"""The runner by the first word of how a run was measured; of other words nothing is known."""


def on_groups(how: str) -> bool:
    """Return whether a run was measured on machines that are control groups."""
    return _kind(how) == GROUP


def refuse_other_machines(hows: Sequence[str], runner: str, share: float) -> None:
    """Refuse a table whose runs had other machines than those of ``runner``, or local ones with
    another number of CPUs than ``share``; ``hows`` are its rows'.

    Raises:
        InputError: there is such a row, or one whose number of CPUs is none.
    """
    known = {_RUNNERS[_kind(how)] for how in hows if _kind(how) in _RUNNERS}
    if len(known) > 1:
        raise InputError(
            f"The table mixes the machines of several runners: {', '.join(sorted(known))}.",
            field="--out",
            hint="Divide its rows by their column how, and go on with one of the files.",
        )
    for number, how in enumerate(hows, 1):
        other = _RUNNERS.get(_kind(how), runner)
        if other != runner:
            raise InputError(
                f"The machines of the table are those of {other} (row {number}).",
                field="--runner",
                value=runner,
                allowed=other,
                hint="Give the same --runner, or choose another file with --out: runs on other "
                "machines are not mixed.",
            )
    if runner == "local":
        _refuse_other_share(hows, share)


def mixed_machines(hows: Sequence[str]) -> str | None:
    """Return a warning where some machines of a table were control groups and others processes,
    which have no limit of their CPUs; None where all were alike."""
    kinds = [_kind(how) for how in hows]
    groups, processes = kinds.count(GROUP), kinds.count(PROCESS)
    if not groups or not processes:
        return None
    return (
        f"the table mixes machines: in {groups} of its runs they were control groups, in "
        f"{processes} processes without CPU limits"
    )


def _refuse_other_share(hows: Sequence[str], share: float) -> None:
    for number, how in enumerate(hows, 1):
        cpus = how.partition(" ")[2].strip() if on_groups(how) else ""
        if not cpus:
            continue
        try:
            other = f"{float(cpus):g}"
        except ValueError as error:
            raise InputError(
                "has no number of CPUs.",
                field=f"row {number}, column 'how'",
                value=how,
                allowed=f"as '{GROUP} {share:g}'",
            ) from error
        if other != f"{share:g}":
            raise InputError(
                f"The machines of the table had {other} CPUs (row {number}).",
                field="--share",
                value=f"{share:g}",
                allowed=other,
                hint="Give the same --share, or choose another file with --out: runs on machines "
                "with other CPUs are not mixed.",
            )


def _kind(how: str) -> str:
    return how.partition(" ")[0]
