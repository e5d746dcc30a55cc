"""A store that shares its unfinished campaigns with the agent of this node, through a journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kongming.campaigns.journal import Journal
from kongming.records.errors import IncompatibleError
from kongming.records.run import Run, Signature

if TYPE_CHECKING:
    from kongming.campaigns.campaign import OpenCampaign
    from kongming.records.fingerprint import Fingerprint, NodeFacts
    from kongming.store import Store


class JournaledStore:
    """A ``Sink``: a store together with a journal in ``folder``."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder
        self._journal: Journal | None = None

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def put_node(self, node: NodeFacts) -> None:
        self._store.put_node(node)

    def put_application(self, name: str, identity: str, document: Mapping[str, Any]) -> None:
        self._store.put_application(name, identity, document)

    def open_campaign(self, key: str, document: Mapping[str, Any]) -> OpenCampaign:
        """Return the journal's campaign of this key, or the store's; each gets the other's records.

        Raises:
            IncompatibleError: they have two different ones.
        """
        self.close()
        self._journal = journal = Journal(self._folder, key, by="store")
        entry = journal.entry
        under_way = [c for c in self._store.campaigns() if c.key == key and c.finished_at is None]
        mine = under_way[0].id if under_way else None
        if entry is None or (entry.finished and entry.id != mine):
            campaign = self._store.open_campaign(key, document)
            journal.begin(campaign.id, campaign.document)
        elif mine not in (None, entry.id):
            raise IncompatibleError(
                "The store and the journal hold two unfinished campaigns of these settings.",
                hint=f"Finish the store's without --journal, or remove {journal.path}.",
            )
        else:
            campaign = self._store.open_campaign(key, entry.document, campaign_id=entry.id)
        there = {record.id for record in journal.records}
        held: list[Run | Signature] = [*self._store.runs(campaign=campaign.id)]
        held += self._store.signatures(campaign=campaign.id)
        for record in held:
            if record.id not in there:
                journal.add(record)
        for record in journal.records:
            self._add(record)
        return campaign

    def campaign_steps_done(self, campaign_id: str) -> AbstractSet[int]:
        return self._store.campaign_steps_done(campaign_id)

    def runs(self, *, campaign: str) -> Sequence[Run]:
        return self._store.runs(campaign=campaign)

    def signatures(self, *, campaign: str) -> Sequence[Signature]:
        return self._store.signatures(campaign=campaign)

    def finish_campaign(self, campaign_id: str) -> None:
        self._store.finish_campaign(campaign_id)
        if self._journal is not None:
            self._journal.finish()

    def add_fingerprint(self, fingerprint: Fingerprint, purpose: str = "adhoc") -> None:
        self._store.add_fingerprint(fingerprint, purpose=purpose)

    def add_run(self, run: Run) -> None:
        self._add(run)
        if self._journal is not None:
            self._journal.add(run)

    def add_signature(self, signature: Signature) -> None:
        self._add(signature)
        if self._journal is not None:
            self._journal.add(signature)

    def _add(self, record: Run | Signature) -> None:
        """An existing record is not changed."""
        if isinstance(record, Run):
            self._store.add_run(record)
        else:
            self._store.add_signature(record)
