"""Benchmarks for asv that report what the machine did: a recipe to copy into benchmarks/.

``Watched`` makes a result n/a where the machine was disturbed right before it, and
``MachineSuite`` keeps a quick fingerprint as series of its own next to each commit: where these
step, the machine changed and not the program.
"""

import functools

from kongming.gate.watching import Watcher


@functools.cache
def look():
    """A quick fingerprint and the signals over it, once a process: about a second."""
    watcher = Watcher(effect=0.05)
    return watcher.end(watcher.begin())


class Watched:
    """Base of benchmarks whose results count only on an undisturbed machine.

    More rounds than asv's two, which ``asv continuous --interleave-rounds`` makes by turns of both
    commits: drift of the machine is then in both.
    """

    rounds = 6

    def setup(self):
        reasons = look().reasons
        if reasons:
            # asv takes this for "skipped": the result is n/a, and no regression is found in it.
            raise NotImplementedError(" ".join(map(str, reasons)))


class SumSuite(Watched):
    """One of your own."""

    def time_sum(self):
        sum(range(10_000))


class MachineSuite:
    """The machine next to each commit: seconds per operation of a surrogate, not your program."""

    params = ("compute.int", "compute.float", "memory.random.8M", "memory.streaming.128M")
    param_names = ("surrogate",)
    unit = "s"

    def track_seconds(self, surrogate):
        return look().after.times().get(surrogate, float("nan"))
