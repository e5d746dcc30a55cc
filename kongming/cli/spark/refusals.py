"""Options of ``kongming spark estimate`` that cannot be given together, or not for a log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def refuse_with_paper(given: Mapping[str, object]) -> None:
    """Raise InputError where an option is given that the paper's model has no place for."""
    from kongming.records.errors import InputError

    names = [name for name, value in given.items() if value]
    if names:
        several = len(names) > 1
        raise InputError(
            f"--model paper and {' and '.join(names)} cannot be given together: the paper's model "
            "has constant lengths on executors that are there from start to end, and no "
            f"correction that {'these options' if several else 'this option'} could change.",
            hint=f"Leave --model paper out, or {' and '.join(names)}; every answer of the replay "
            "has the paper's model next to it, as 'constant'.",
        )


def refuse_risk(risk: float | None, deadline: float | None, like: Path | None) -> None:
    """Raise InputError where a probability is required of nothing that has one."""
    from kongming.records.errors import InputError

    if risk is None:
        return
    if deadline is None:
        raise InputError(
            "--risk tells nothing without --deadline.",
            hint="Give the time that is to be kept with it: --deadline TIME",
        )
    if like is not None:
        raise InputError(
            "--risk and --like cannot be given together: what is left of a run is a median, "
            "without the interval that a probability would come from.",
            hint="Leave --risk out, and give a --deadline with a margin.",
        )


def refuse_for_a_part(given: Mapping[str, object]) -> None:
    """Raise InputError where an option is given that compares the time of LOG, which holds a part
    of its run only, with times of full runs, or saves it as such a time."""
    from kongming.records.errors import InputError

    name = next((name for name, value in given.items() if value), None)
    if name is not None:
        raise InputError(
            "is of full runs, and LOG is of a run that has not ended, or whose driver was killed: "
            "what it holds takes less time.",
            field=name,
            hint="Leave it out, or give the log of an earlier run that has ended: --like LOG"
            if name == "--deadline"
            else "Leave it out, or give the log once it has the application's end.",
        )
