"""``kongming-slurm``: bridge, prolog and epilog."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kongming.processes import standard_streams

if TYPE_CHECKING:
    from kongming_slurm.hooks import Hook


def main() -> None:
    """The console script."""
    standard_streams.prepare()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run ``kongming-slurm ARGUMENTS`` and return its exit status; errors are printed."""
    hook: Hook | None = None
    if arguments and arguments[0] in ("prolog", "epilog"):
        hook = "prolog" if arguments[0] == "prolog" else "epilog"
    options = list(arguments[1:])
    if hook and (not options or (options[0] == "--config" and len(options) == 2)):
        # A job waits for its prolog: nothing that is slow to load is loaded for it.
        from kongming_slurm import hooks

        return hooks.run(hook, Path(options[1]) if options else None, hooks.environment())
    from kongming_slurm.commands import run as run_command

    status = run_command(arguments)
    # Slurm would drain the node of a prolog that fails.
    return 0 if hook else status


if __name__ == "__main__":
    main()
