"""``kongming audit gate``: is this machine fit to measure on; which program is slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kongming.cli import options, output
from kongming.cli.durations import DURATION
from kongming.cli.examples import examples
from kongming.cli.shares import FRACTION
from kongming.gate.exit_status import CANNOT_TELL, SLOWER, UNFIT
from kongming.quantities import format_percent, per_cent

if TYPE_CHECKING:
    from kongming.gate.fitness import Answer


@click.command(
    "gate",
    short_help="Check whether this machine can show an effect, and with how many runs.",
    epilog=examples(
        "kongming audit gate --effect 5% --command './benchmark --size 1000'",
        "kongming audit gate --effect 5% --command ./new --baseline ./old --budget 5m",
    ),
)
@click.option(
    "--effect",
    type=FRACTION,
    default="2%",
    show_default=True,
    help="The smallest slowdown that must be detected.",
)
@click.option(
    "--command",
    "line",
    metavar="CMD",
    help="The program to measure, a shell line. Default: the noise of the surrogates.",
)
@click.option(
    "--baseline",
    "baseline_line",
    metavar="CMD",
    help="Test whether --command is slower than this program, by alternating runs.",
)
@click.option(
    "--budget",
    type=DURATION,
    default="30s",
    show_default=True,
    metavar="TIME",
    help="Measure for at most about this long.",
)
@click.option(
    "--most",
    type=click.IntRange(min=6),
    default=100,
    show_default=True,
    metavar="N",
    help="Maximum number of repetitions of each program.",
)
@click.option(
    "--false-positives",
    type=FRACTION,
    default="5%",
    show_default=True,
    help="Accepted probability of reporting an unchanged program as slower.",
)
@click.option(
    "--power",
    type=FRACTION,
    default="90%",
    show_default=True,
    help="Required probability of detecting a program that is slower by the effect.",
)
@click.option(
    "--cpu",
    type=int,
    metavar="N",
    help="Measure on this CPU, and pin the command to it. Default: the first allowed; not pinned.",
)
@options.wide_option
@options.json_option
def command(
    effect: float,
    line: str | None,
    baseline_line: str | None,
    budget: float,
    most: int,
    false_positives: float,
    power: float,
    cpu: int | None,
    as_json: bool,
) -> int:
    """Decide whether this machine is fit to measure on, and how many repetitions an effect takes.

    Quick fingerprints, and runs of the command between them, show the noise from run to run; the
    system's signals show steal, throttling and other processes. Exit status: 0 if it is fit, 4 if
    not, with the reasons.

    With --baseline both programs run in each turn, and the answer is a verdict. Exit status: 0 if
    the command is not slower, 4 if it is, 3 if there were too few runs or something disturbed them.
    """
    from kongming.gate.noise import Goal
    from kongming.gate.session import Settings, ask
    from kongming.records.errors import InputError

    for name, text, hint in (
        ("--command", line, "Leave it out to measure the surrogates alone."),
        ("--baseline", baseline_line, "Leave it out to compare with nothing."),
    ):
        if text is not None and not text.strip():
            raise InputError(
                "has no program.", field=name, value=text, allowed="a shell line", hint=hint
            )
    if baseline_line is not None and line is None:
        raise InputError(
            "is compared with nothing.",
            field="--baseline",
            value=baseline_line,
            allowed="together with --command",
        )
    goal = Goal(effect, false_positives, power)
    settings = Settings(goal, line, budget, cpu, most, baseline_line)
    if as_json:
        answer = ask(settings)
    else:
        with output.progress("measuring", budget) as bar:
            answer = ask(
                settings, lambda done, total, text: bar.update(done, total=total, text=text)
            )
    if baseline_line is None:
        status = 0 if answer.fit else UNFIT
    else:
        status = {"slower": SLOWER, "not slower": 0, "cannot tell": CANNOT_TELL}[answer.verdict]
    if as_json:
        compared = {} if baseline_line is None else {"verdict": answer.verdict}
        programs = {"command": line, "baseline": baseline_line}
        output.emit_json({**answer.to_dict(), **programs, **compared, "status": status})
    else:
        _show(answer)
        if baseline_line is not None:
            _show_verdict(answer)
    return status


def _show_verdict(answer: Answer) -> None:
    colour = {"slower": "red", "not slower": "green", "cannot tell": "yellow"}[answer.verdict]
    text = "cannot tell, it was disturbed"
    if answer.comparison is not None:
        text = str(answer.comparison)
        if answer.comparison.more:
            text += ". More runs: a longer --budget, a larger --most"
    console = output.console()
    console.print(f"The command against the baseline: {text}.", style=colour, markup=False)


def _show(answer: Answer) -> None:
    goal = answer.goal
    console = output.console()
    effect = per_cent(100.0 * goal.effect, ".3g")
    columns = ("what", "one run", "runs", "noise", "noise below", "repetitions", "smallest effect")
    rows = [
        (
            subject.name,
            "" if subject.typical_s is None else output.format_seconds(subject.typical_s),
            subject.noise.runs,
            format_percent(subject.noise.estimate),
            format_percent(subject.noise.upper),
            subject.repetitions_at_most,
            format_percent(subject.smallest_effect),
        )
        for subject in answer.subjects
    ]
    if rows:
        minor = ("one run", "runs", "noise below", "smallest effect", "noise")
        console.print(output.table(columns, rows, right=columns[1:], minor=minor))
        console.print(
            "Repetitions: the most that this noise may ask for, of each of two programs, by turns: "
            f"a program that is {effect} slower is found "
            f"{per_cent(100.0 * goal.power, '.3g')} of the time, an unchanged one is called slower "
            f"{per_cent(100.0 * goal.false_positives, '.3g')} of the time (one-sided, means of "
            "log times with "
            f"20 % trimmed from each end). Smallest effect: with {answer.most} repetitions.",
            style="dim",
            markup=False,
        )
    if answer.comparison is not None:
        return
    if answer.fit:
        console.print(
            f"Fit: make {answer.repetitions} repetitions of each program.",
            style="green",
            markup=False,
        )
        return
    console.print(f"Not fit to see a slowdown of {effect}:", style="red", markup=False)
    for reason in answer.reasons:
        console.print(f"- {reason.resource}: {reason}", markup=False)
