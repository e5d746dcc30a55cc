"""A placement study: a trace of jobs over a fleet, under several policies."""

from kongming.simulate.aware import Rules
from kongming.simulate.fleet import Fleet, Kind, alike, read_fleet
from kongming.simulate.merit import merit, slowdowns
from kongming.simulate.pair_files import PairFile, read_pairs
from kongming.simulate.pairs import (
    Beliefs,
    MeasuredPair,
    PairTable,
    beliefs_of,
    known_truth,
    made_up,
)
from kongming.simulate.replay import Outcome
from kongming.simulate.study import DEFAULT, NAMES, Study, documented
from kongming.simulate.trace import Synthetic, Trace, read_trace
from kongming.simulate.waiting import Queueing

__all__ = [
    "DEFAULT",
    "NAMES",
    "Beliefs",
    "Fleet",
    "Kind",
    "MeasuredPair",
    "Outcome",
    "PairFile",
    "PairTable",
    "Queueing",
    "Rules",
    "Study",
    "Synthetic",
    "Trace",
    "alike",
    "beliefs_of",
    "documented",
    "known_truth",
    "made_up",
    "merit",
    "read_fleet",
    "read_pairs",
    "read_trace",
    "slowdowns",
]
