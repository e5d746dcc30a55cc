"""Run or resume campaigns with a live table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from kongming.cli import output
from kongming.cli.profile.campaign_view import CampaignView

if TYPE_CHECKING:
    from kongming.campaigns.campaign import Budget, Sink
    from kongming.campaigns.profile_campaign import ProfileCampaign, ProfileSettings
    from kongming.profiling.events import Event
    from kongming.records.run import Run


def profile_applications(
    sink: Sink,
    settings: ProfileSettings,
    budget: Budget,
    *,
    quiet: bool = False,
    anyway: bool = False,
    write_limit_bytes: float | None = None,
) -> tuple[ProfileCampaign, CampaignView]:
    """Run the campaign, or its remaining steps; ``quiet`` prints nothing about resuming.

    Raises:
        BusyError: something else measures on these CPUs, and ``anyway`` is false.
    """
    from kongming.campaigns.profile_campaign import ProfileCampaign
    from kongming.probes.measuring import measuring

    campaign = ProfileCampaign.begin(settings, sink)
    plan, done = campaign.plan, campaign.done
    if done and not quiet:
        output.error_console().print(f"resuming: {len(done)} of {len(plan.steps)} steps are done")
    if campaign.earlier:
        output.print_warnings(campaign.moved)
    view = CampaignView(
        sorted(settings.apps), f"{plan.name} plan, {plan.placement}, seed {plan.seed}"
    )
    view.time_left = budget.seconds_left
    for run in campaign.earlier:
        if run.ok or run.step in done:
            view.see(run)
    for signature in sink.signatures(campaign=campaign.id):
        view.see(signature)
    with measuring("kongming profile", anyway=anyway), _resumable(view), view:
        campaign.drive(budget, view.see, write_limit_bytes)
    return campaign, view


@contextmanager
def _resumable(view: CampaignView) -> Iterator[None]:
    """Print on Ctrl-C which steps are kept, and how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        output.error_console().print(
            f"{view.step} of {view.steps} steps are done and kept; the same command goes on from "
            "here.",
            highlight=False,
        )
        raise


class _Resumable(Protocol):
    """A campaign of an evaluation, as ``drive`` needs it."""

    @property
    def steps(self) -> Collection[object]: ...

    @property
    def done(self) -> frozenset[int]: ...

    @property
    def earlier(self) -> list[Run]: ...

    @property
    def moved(self) -> list[str]: ...

    def drive(self, budget: Budget, observe: Callable[[Event], object], /) -> None: ...


def drive_shown(
    campaign: _Resumable,
    view: CampaignView,
    budget: Budget,
    *,
    quiet: bool,
    anyway: bool,
) -> None:
    """Run the remaining part of a campaign; ``quiet`` prints nothing about resuming.

    Raises:
        BusyError: something else measures on these CPUs, and ``anyway`` is false.
    """
    from kongming.probes.measuring import measuring

    done = campaign.done
    if done and not quiet:
        total = len(campaign.steps)
        output.error_console().print(f"resuming: {len(done)} of {total} runs are done")
    if campaign.earlier:
        output.print_warnings(campaign.moved)
    view.time_left = budget.seconds_left
    for run in campaign.earlier:
        view.see(run)
    with measuring("kongming evaluate", anyway=anyway), _resumable(view), view:
        campaign.drive(budget, view.see)
