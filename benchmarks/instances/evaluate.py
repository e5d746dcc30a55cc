"""The evaluation of the paper's Table IV over the machines whose files are here.

    python -m benchmarks.instances.evaluate
    python -m benchmarks.instances.evaluate FILE.parquet...

Prints one JSON document: median and inter-quartile error by program and model, their geometric
means, MEAN among the models, the noise floor, and how many machines there are. Each machine is
left out in turn; while there is one alone, blocks of time are left out instead, which is an easier
question; the document says so (``"leave": "block"``, ``"table_iv": false``).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kongming.audit.instances.accuracy import accuracy
from kongming.audit.instances.leave_out import Leave
from kongming.audit.readings import read_observations
from kongming.records.errors import CannotAnswerError

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="*", help="default: those next to this program")
    files = parser.parse_args().files or sorted(HERE.glob("*.parquet"))
    if not files:
        print(json.dumps({"benchmark": "instances", "machines": 0}, indent=2))
        return 3
    observations = read_observations(files)
    leave: Leave = "instance" if len(observations.machines) > 1 else "block"
    try:
        scores = accuracy(observations, leave)
    except CannotAnswerError as error:
        print(error, file=sys.stderr)
        return 3
    table_iv = leave == "instance"
    print(json.dumps({"benchmark": "instances", "table_iv": table_iv, **scores}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
