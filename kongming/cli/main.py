"""Entry point of ``kongming``: the table of commands, and the exit status of each error.

Exit status: 0 done; 1 failed; 2 wrong input or usage; 3 no honest answer; 4 a stated check
failed; 130 on Ctrl-C; 143 on SIGTERM; 141 when the reader of stdout went away.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from kongming import __version__
from kongming.cli import failures
from kongming.cli.examples import examples
from kongming.lazy_group import Entry, LazyGroup
from kongming.processes import standard_streams
from kongming.processes.entry import (
    interrupted_status,
    interruption,
    print_plainly,
    print_traceback,
    terminate,
)

MEASURE, PROFILE, PREDICT, FLEET, KEEP = (
    "Measure this node",
    "Profile applications",
    "Predict and check",
    "Many nodes: from the store, or from a server (--server)",
    "Show and move measurements",
)

COMMANDS: dict[str, Entry] = {
    name: Entry(f"kongming.cli.{module}:command", text, group)
    for name, module, text, group in (
        ("suite", "measure.suite", "List the surrogates: one resource each.", MEASURE),
        (
            "fingerprint",
            "measure.fingerprint",
            "Time the surrogates on the node as it is now.",
            MEASURE,
        ),
        (
            "reference",
            "measure.reference",
            "Measure the cost of the surrogates on the idle node.",
            MEASURE,
        ),
        ("induce", "measure.induce", "Load the node with one surrogate.", MEASURE),
        (
            "observe",
            "measure.observe",
            "Alternate fingerprints and program runs over hours.",
            MEASURE,
        ),
        ("init", "profile.init", "Write a commented applications file to start from.", PROFILE),
        (
            "profile",
            "profile.profile",
            "Run applications under load levels and keep the runs.",
            PROFILE,
        ),
        ("train", "predict.train", "Train models on profiled applications.", PREDICT),
        (
            "predict",
            "predict.predict",
            "Predict an application's runtime, now or next to others.",
            PREDICT,
        ),
        ("pair", "predict.pair", "Predict two applications that run next to each other.", PREDICT),
        (
            "corun",
            "profile.corun",
            "Run two applications together, and compare with the prediction.",
            PREDICT,
        ),
        ("scale", "scale.group", "Predict a job with more input, on more machines.", PREDICT),
        ("spark", "spark.group", "Predict a Spark job from the event log of one run.", PREDICT),
        ("explore", "explore.group", "Run few of many settings, and predict the others.", PREDICT),
        (
            "evaluate",
            "evaluate.evaluate",
            "Compare predictions with measurements.",
            PREDICT,
        ),
        (
            "audit",
            "audit.group",
            "Is a machine fit to measure on; how machines differ.",
            PREDICT,
        ),
        (
            "simulate",
            "simulate.simulate",
            "Replay a trace of jobs under several placement policies.",
            PREDICT,
        ),
        ("nodes", "fleet.known_nodes", "List nodes and how loaded they are.", FLEET),
        ("explain", "predict.explain", "Show which surrogates a prediction comes from.", FLEET),
        ("rank", "predict.rank", "Order nodes by how well an application would run there.", FLEET),
        ("watch", "fleet.watch", "Show a node as it changes.", FLEET),
        (
            "assignments",
            "fleet.assignments",
            "List jobs on nodes; reserve, bind, release.",
            FLEET,
        ),
        ("sensor", "sensor.group", "Report to a batch system how loaded a node is.", FLEET),
        ("operations", "fleet.operations", "List trainings of a server; follow, cancel.", FLEET),
        ("register", "fleet.register", "Register applications without running them.", FLEET),
        ("apps", "profile.apps", "List the applications that were profiled.", KEEP),
        ("runs", "profile.runs", "List runs.", KEEP),
        ("models", "predict.models", "List trained models.", KEEP),
        ("model", "predict.model", "Show one model: errors, selection, sensitivity, origin.", KEEP),
        ("export", "store.export", "Write measurements to a Parquet file.", KEEP),
        ("import", "store.import_", "Read measurements exported on another machine.", KEEP),
    )
}
"""All commands, in the order of the work."""


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    unknown=failures.unknown_command,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="'kongming COMMAND --help' describes a command. KONGMING_STORE names the store "
    "(--store).\n\n"
    + examples("kongming init", "kongming profile apps.toml --dry-run", "kongming predict sort"),
)
@click.version_option(__version__, prog_name="kongming", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of an error (KONGMING_DEBUG=1).")
def cli(debug: bool) -> None:
    """Predict how long a program runs on this node as loaded now, or next to others.

    Measure the node, profile applications under load, train models, then predict.
    """
    if debug:
        os.environ["KONGMING_DEBUG"] = "1"


def _listen() -> None:
    """Turn signals that end a process into exceptions, so that ``finally`` reaps children."""
    for signum in (signal.SIGTERM, signal.SIGHUP):
        # nohup ignores SIGHUP, and that stays so.
        if signal.getsignal(signum) is signal.SIG_DFL:
            signal.signal(signum, terminate)


def _invoke(args: Sequence[str]) -> int:
    """Run a command. It returns nothing, or its exit status."""
    with cli.make_context("kongming", list(args)) as context:
        result: Any = cli.invoke(context)
    sys.stdout.flush()
    return result if type(result) is int else 0


def run(args: Sequence[str], invoke: Callable[[Sequence[str]], int] = _invoke) -> int:
    """Run ``kongming ARGS`` and return its exit status; errors are printed, never raised."""
    as_json = failures.wants_json(args)
    failures.forget_document()
    try:
        return invoke(args)
    except click.exceptions.Exit as done:
        return done.exit_code
    except (KeyboardInterrupt, click.Abort) as ended:
        return _interrupted(ended, as_json)
    except BrokenPipeError:
        return _quietly_end()
    except Exception as error:  # the last resort is a sentence; the traceback is for asking
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            return _quietly_end()
        signalled = interruption(error)
        if signalled is not None:
            print_traceback(error)
            return _interrupted(signalled, as_json)
        return failures.report(error, cli, args, as_json)


def _interrupted(ended: BaseException, as_json: bool) -> int:
    failures.report_interrupt(as_json)
    return interrupted_status(ended)


def _quietly_end() -> int:
    """The reader of stdout went away, as ``head`` does: there is no reader left."""
    # Otherwise the interpreter complains when it flushes stdout at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 128 + signal.SIGPIPE


def main() -> None:
    """The console script."""
    standard_streams.prepare()
    if "_KONGMING_COMPLETE" in os.environ:
        cli.main(prog_name="kongming")
    _listen()
    print_plainly(sys.stdout, sys.stderr)
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        status = _quietly_end()
    sys.exit(status)


if __name__ == "__main__":
    main()
