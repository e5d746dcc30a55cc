"""Policies by which the next points are chosen: one file for each policy.

A policy is a function of a ``Situation`` and a count that gives codes of so many points, or of as
many as are left.
"""

from __future__ import annotations

from collections.abc import Callable

from kongming.arrays import Floats
from kongming.explore.policies import actl, auto, dta, panic, uni
from kongming.explore.situation import Situation

Policy = Callable[[Situation, int], Floats]

POLICIES: dict[str, Policy] = {
    "uni": uni.choose,
    "actl": actl.choose,
    "panic": panic.choose,
    "dta": dta.choose,
    "auto": auto.choose,
}
