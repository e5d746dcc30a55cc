"""The combination of terms within a fit of a single context."""

from __future__ import annotations

from kongming.scale.fit.ernest import ErnestFit
from kongming.scale.fit.nearest import NearestFit
from kongming.scale.fit.residuals import ResidualFit
from kongming.scale.fit.stack import StackFit
from kongming.scale.fit.validation import Fit


def backbone_of(fit: Fit) -> ErnestFit | None:
    """Return the combination of terms within a fit of a single context, if there is one."""
    if isinstance(fit, ErnestFit):
        return fit
    if isinstance(fit, StackFit):
        return fit.backbone
    if isinstance(fit, ResidualFit):
        return fit.ernest
    return fit.beyond if isinstance(fit, NearestFit) else None
