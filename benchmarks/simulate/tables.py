"""A store's measured pairs, with what its models predict, as a table for kongming simulate.

    python -m benchmarks.simulate.tables --store URL [--placement P] > pairs.csv

A row is one repeat of a pair: its slowdown over the solo runs of the same minutes. The models have
to be trained before (kongming train). Solo seconds are the geometric mean of the solo runs.
"""

from __future__ import annotations

import argparse
import csv
import sys
from itertools import permutations

from kongming.evaluate.predicted_pairs import Scale, measured_pairs
from kongming.records.errors import KongmingError
from kongming.records.fingerprint import PLACEMENTS
from kongming.records.questions import DEFAULT_PLACEMENT
from kongming.simulate.study_inputs import STORE, Source, beliefs_for, pairs_of
from kongming.store import Store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--store", required=True, metavar="URL")
    parser.add_argument("--placement", choices=PLACEMENTS, default=DEFAULT_PLACEMENT)
    options = parser.parse_args()
    source = Source(STORE, STORE, None, "auto", options.placement, False, options.store, 0)
    try:
        file = pairs_of(source)
        table = file.table.filled()
        beliefs = beliefs_for(source, file, table)
        with Store.open(options.store) as store:
            runs = store.runs(placement=options.placement, ok=True, fingerprints=False)
    except KongmingError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    assert beliefs is not None
    campaigns = {run.campaign for run in runs if run.kind == "corun"}
    pairs = measured_pairs(
        [run for run in runs if run.campaign in campaigns],
        permutations(sorted(table.apps), 2),
        Scale("bracketed", {}),
    )
    median, upper = beliefs.slowdowns()
    write = csv.writer(sys.stdout, lineterminator="\n").writerow
    write(("app", "neighbour", "slowdown", "solo_s", "predicted", "predicted_upper"))
    for pair in pairs:
        a, b = table.place(pair.app), table.place(pair.neighbour)
        for value in pair.values:
            numbers = (value, table.solo_s[a], median[a, b], upper[a, b])
            write((pair.app, pair.neighbour, *(f"{number:.4f}" for number in numbers)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
