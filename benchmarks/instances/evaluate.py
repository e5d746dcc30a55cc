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
from collections import defaultdict
from pathlib import Path

from kongming.audit.instances.accuracy import accuracy
from kongming.audit.instances.leave_out import Leave
from kongming.audit.readings import read_observations
from kongming.records.errors import CannotAnswerError

HERE = Path(__file__).parent


def of_one_suite(files: list[Path]) -> tuple[list[Path], list[str]]:
    """Return the files of the suite version that most of them have, and the names of the others:
    where caches differ in size, so do surrogates, and their readings are not mixed."""
    by_version = defaultdict(list)
    for file in files:
        for session in read_observations([file]).sessions.values():
            by_version[session.get("suite_version")].append(file)
    most = max(by_version.values(), key=len, default=[])
    return most, [file.name for file in files if file not in most]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="*", help="default: those next to this program")
    given = parser.parse_args().files
    files, left_out = (given, []) if given else of_one_suite(sorted(HERE.glob("*.parquet")))
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
    document = {"benchmark": "instances", "table_iv": table_iv, "other_suite": left_out}
    print(json.dumps({**document, **scores}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
