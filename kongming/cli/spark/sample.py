"""``kongming spark sample``: a sample of a table that keeps its shape, by a PySpark job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import click

from kongming.cli import options, output
from kongming.cli.examples import examples
from kongming.cli.shares import Share
from kongming.quantities import count as counted
from kongming.quantities import per_cent

MEANING = (
    "A run on the sample gives the shape of the curve and the best number of executors, not the "
    "time on all data."
)


@click.command(
    "sample",
    short_help="Take a sample of the data that keeps its shape.",
    epilog=examples(
        "kongming spark sample orders.parquet --out small/orders --keys o_custkey --ratio 0.1",
        "kongming spark sample lineitem.parquet --out small/lineitem --join-key l_orderkey",
    ),
)
@click.argument("source", metavar="IN")
@click.option("--out", "target", metavar="DIR", required=True, help="A new folder.")
@click.option(
    "--keys",
    metavar="COLUMN,...",
    default="",
    help="Columns whose distribution is kept: the keys of joins and groups. Without any the sample "
    "is random.",
)
@click.option(
    "--buckets",
    type=click.IntRange(min=2, max=200),
    default=10,
    show_default=True,
    help="Number of groups that each key is cut into.",
)
@click.option("--ratio", type=Share(1.0), default=0.1, show_default=True, help="Share of the rows.")
@click.option(
    "--join-key",
    metavar="COLUMN",
    help="Sample by the hash of this column, as in the tables that are joined with this one.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the choice of rows.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "orc", "json", "csv"]),
    default="parquet",
    show_default=True,
    help="Of both tables.",
)
@click.option(
    "--submit",
    metavar="COMMAND",
    help="spark-submit with its own options [default: from SPARK_HOME or the PATH].",
)
@options.wide_option
@options.json_option
def command(
    source: str,
    target: str,
    keys: str,
    buckets: int,
    ratio: float,
    join_key: str | None,
    seed: int,
    kind: str,
    submit: str | None,
    as_json: bool,
) -> None:
    """Sample a table so that a run on the sample scales as one on all data.

    Each key is cut into buckets of equal frequency, rare categories are put together, and every
    combination of buckets keeps its share of the rows and its partition. Pearson's chi-square test
    tells whether sample and table differ, for each key and for the combinations; if they do it is
    tried again, then nothing is written (exit 4). With --join-key it is not tried again, as the
    tables that are joined need one --seed. The answer has the settings under which each partition
    of the sample is read by one task, as that of the table. A sample gives the shape and the best
    number of executors, not the time on all data.
    """
    from kongming.records.errors import CheckFailedError, InputError
    from kongming.spark.sample_ratio import SETTING

    request = {
        "input": source,
        "output": target,
        "keys": [name.strip() for name in keys.split(",") if name.strip()],
        "buckets": buckets,
        "ratio": ratio,
        "join_key": join_key,
        "seed": seed,
        "format": kind,
    }
    report = _submitted(submit, request)
    if "error" in report:
        raise InputError(report["error"], hint=report["hint"])
    attempts = counted(report["attempts"], "attempt")
    if not report["sampled"]:
        raise CheckFailedError(
            f"After {attempts} the sample has none of {report['rows']} rows; nothing was written.",
            hint="Take a larger --ratio.",
        )
    if not report["passed"]:
        worst = min([*report["keys"], report["strata_test"]], key=lambda test: test["p"])
        raise CheckFailedError(
            f"After {attempts} the sample differs from the table in {worst['name']} "
            f"(chi-square {worst['chi_square']:.1f}, p = {worst['p']:.3g}); nothing was written.",
            hint="Sample all tables that are joined with another --seed, or a larger --ratio."
            if join_key
            else "Take fewer keys or buckets, or a larger --ratio.",
        )
    # The log of a run with it shows that its times are of a sample, and of how large a one: a
    # frequent join key makes it another than was asked for.
    report["conf"] = {**report["conf"], SETTING: f"{report['ratio']:.12g}"}
    report["meaning"] = MEANING
    if as_json:
        output.emit_json(report)
        return
    console = output.console()
    console.print(
        f"{report['sampled']} of {report['rows']} rows ({per_cent(100 * report['ratio'])}) of "
        f"{counted(report['files'], 'partition')}, {report['strata']} strata.",
        markup=False,
    )
    if report["files"] < report["partitions"]:
        console.print(
            f"The table is read in {counted(report['partitions'], 'partition')}; of the others "
            "no row is in the sample.",
            markup=False,
        )
    tests = [*report["keys"], report["strata_test"]]
    console.print(
        output.table(
            ["key", "kind", "buckets", "chi-square", "p"],
            [
                [t["name"], t["kind"], t["buckets"], f"{t['chi_square']:.1f}", f"{t['p']:.3f}"]
                for t in tests
            ],
            right=("buckets", "chi-square", "p"),
        )
    )
    console.print(
        "Run it with " + " ".join(f"--conf {key}={value}" for key, value in report["conf"].items()),
        markup=False,
        soft_wrap=True,
    )
    console.print(MEANING, markup=False)


def _submitted(submit: str | None, request: dict[str, Any]) -> dict[str, Any]:
    """Run the job and return its report.

    Raises:
        InputError: there is no spark-submit, or ``submit`` is no command.
        MeasurementError: the job failed.
    """
    import shlex

    import kongming
    from kongming.records.errors import InputError, MeasurementError
    from kongming.spark.sampling import job

    try:
        command = shlex.split(submit) if submit else [_spark_submit()]
    except ValueError as error:
        raise InputError(f"is no command: {error}.", field="--submit", value=submit) from error
    if not command:
        raise InputError("is empty.", field="--submit", value=submit)
    programs = os.environ.get("PATH", "")
    if os.sep in command[0] and (submit or shutil.which("spark-submit") != command[0]):
        # As in an activated environment: pip's spark-submit looks for a Python that has PySpark.
        folder = str(Path(command[0]).absolute().parent)
        programs = os.pathsep.join(filter(None, [folder, programs]))
    root = str(Path(kongming.__file__).resolve().parent.parent)
    with tempfile.TemporaryDirectory(prefix="kongming-sample-") as scratch:
        report = Path(scratch) / "report.json"
        request_file = Path(scratch) / "request.json"
        request_file.write_text(json.dumps({**request, "report": str(report)}))
        # The driver imports this very package, whatever its Python has installed.
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [*command, str(Path(job.__file__)), str(request_file)],
            env={**os.environ, "PATH": programs, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode or not report.exists():
            lines = [line for line in done.stdout.splitlines() if line.strip()]
            last = lines[-1] if lines else "it printed nothing."
            cause = next((line for line in reversed(lines) if "Exception" in line), last)
            raise MeasurementError(f"The sampling job failed (exit {done.returncode}): {cause}")
        document: dict[str, Any] = json.loads(report.read_text())
        return document


def _spark_submit() -> str:
    from kongming.records.errors import InputError

    home = os.environ.get("SPARK_HOME")
    program = shutil.which("spark-submit", path=f"{home}/bin" if home else None)
    if program is None:
        raise InputError(
            "There is no spark-submit in SPARK_HOME or on the PATH.",
            field="--submit",
            hint="Install Spark (pip install pyspark, and Java 17), or name it with --submit.",
        )
    return program
