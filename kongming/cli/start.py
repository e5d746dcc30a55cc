"""The console script of ``kongming``: Ctrl-C ends it without a traceback while it imports, too."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from kongming.cli.main import main as command
    except KeyboardInterrupt:
        # What says so otherwise is not imported yet.
        print("error: Interrupted.", file=sys.stderr)  # noqa: T201
        sys.exit(130)
    command()
