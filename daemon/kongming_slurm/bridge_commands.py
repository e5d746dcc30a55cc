"""``kongming-slurm``: bridge, prolog and epilog."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from kongming.processes import standard_streams

_HOOKS = ("prolog", "epilog")


def main() -> None:
    """The console script."""
    standard_streams.prepare()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run ``kongming-slurm ARGUMENTS`` and return its exit status; errors are printed."""
    # A job waits for its prolog: nothing that is slow to load is loaded for it.
    if arguments and arguments[0] in _HOOKS and "--help" not in arguments:
        return _hook(arguments)
    from kongming_slurm.commands import run as run_command

    return run_command(arguments)


def _hook(arguments: Sequence[str]) -> int:
    from kongming_slurm import hooks

    options = dict(zip(arguments[1::2], arguments[2::2], strict=False))
    file = Path(options["--config"]) if "--config" in options else None
    name: hooks.Hook = "prolog" if arguments[0] == "prolog" else "epilog"
    return hooks.run(name, file, hooks.environment())


if __name__ == "__main__":
    main()
