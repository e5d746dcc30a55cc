"""Attributes of a machine as a startd's cron job prints them.

Shape: HTCondor's manual, "Startd cron": one ClassAd attribute a line, ``name = value``, texts in
double quotes; a line that begins with a hyphen ends the ad.
"""

from __future__ import annotations

from kongming.sensors.node_figures import NodeFigures, attribute

__all__ = ["classad"]


def classad(figures: NodeFigures, now: float) -> str:
    """Format a node as a ClassAd. What is not known is not there: an expression on it is UNDEFINED,
    which meets no requirement. A startd keeps what the last job printed, so ``KongmingTime`` (unix
    seconds) says how old it is.
    """
    lines = [
        f"KongmingTime = {now:.0f}",
        f'KongmingState = "{figures.state}"',
        f"KongmingAssignments = {figures.assignments}",
    ]
    for name, value in (
        ("KongmingFingerprintAge", figures.fingerprint_age_s),
        ("KongmingSlowdown", figures.slowdown),
        ("KongmingLostShare", figures.lost_share),
    ):
        if value is not None:
            lines.append(f"{name} = {value:.4f}")
    for app, (median, upper) in sorted(figures.apps.items()):
        name = attribute(app)
        lines += [
            f"KongmingSlowdown_{name} = {median:.4f}",
            f"KongmingSlowdownAtLeast_{name} = {'true' if upper is None else 'false'}",
        ]
        if upper is not None:
            lines.append(f"KongmingSlowdownUpper_{name} = {upper:.4f}")
    return "\n".join([*lines, "- update:true", ""])
