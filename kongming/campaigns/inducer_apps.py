"""Programs as load inducers: which may be, and the signatures that they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kongming.records.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from kongming.campaigns.profile_campaign import ProfileSettings
    from kongming.records.application import Application
    from kongming.records.run import Signature
    from kongming.store import Store

OPTION = "--inducer-app"


def select_inducers(
    known: Mapping[str, Application], names: Iterable[str], profiled: Iterable[str]
) -> dict[str, Application]:
    """Return the applications of these names, which are loads of the others among ``profiled``.

    Raises:
        InputError: there is no application of a name, or one would be a load of itself alone.
    """
    from kongming.profiling.appfile import select

    if not (wanted := list(dict.fromkeys(names))):
        return {}
    try:
        inducers = select(known, wanted)
    except UnknownNameError as error:
        raise InputError(error.message, field=OPTION, hint=error.hint) from error
    for name in inducers:
        if not set(profiled) - {name}:
            raise InputError(
                "is the only program that is profiled, and is no load of itself.",
                field=OPTION,
                value=name,
                allowed="another program of the file",
                hint="Choose another one, or profile further programs (--app).",
            )
    return inducers


def with_signatures(store: Store, settings: ProfileSettings) -> ProfileSettings:
    """Return the settings with the signatures that the inducer applications have in the store: of
    this node's CPU pair, and of the suite that is timed.

    Raises:
        InputError: one of them, by its runs in the store, is too short.
    """
    from kongming.campaigns.cost import own_seconds
    from kongming.profiling.runs.signature import needed_seconds

    apps = settings.inducer_apps
    needed = needed_seconds(
        settings.timed,
        len(settings.suite.names_of(settings.timed)),
        shared_core=settings.placement == "same-core",
    )
    for name, app in apps.items():
        alone = own_seconds(store, name, app, settings.node.id)
        if alone is not None and alone < needed:
            raise InputError(
                "is too short: a program next to it would see little but its start.",
                field=OPTION,
                value=f"{name}, {alone:.2g} s alone",
                allowed=f"programs that run for {needed:.2g} s or more",
                hint="Give it a larger input, or a loop in its command, or choose another one.",
            )
    return replace(settings, signatures={name: _signatures(store, settings, name) for name in apps})


def _signatures(store: Store, settings: ProfileSettings, name: str) -> list[Signature]:
    """Return them oldest first."""
    from kongming.profiling.plans.placement import choose

    cpus = settings.inducer_apps[name].cpus
    cpu = choose(settings.node, settings.placement, cpus).app[0]
    signatures = store.signatures(
        app=name,
        identity=settings.inducers[name],
        node_id=settings.node.id,
        placement=settings.placement,
    )
    wanted = (settings.timed, settings.suite.version, cpu)
    return [
        signature
        for signature in reversed(signatures)
        if (
            signature.fingerprint.suite,
            signature.fingerprint.suite_version,
            signature.fingerprint.cpu,
        )
        == wanted
    ]
