"""The store: everything that was measured and learned, in SQLite or PostgreSQL."""

from kongming.store.campaigns import ApplicationEntry, Campaign, Campaigns, StoredApplication
from kongming.store.connection import default_url
from kongming.store.models import ModelEntry, Models
from kongming.store.records import Records
from kongming.store.reference import Reference

__all__ = [
    "ApplicationEntry",
    "Campaign",
    "ModelEntry",
    "Reference",
    "Store",
    "StoredApplication",
    "default_url",
]


class Store(Records, Campaigns, Models):
    """All of the store: ``with Store.open(url) as store: store.add_run(run)``.

    What is added is on disk when the call returns; adding a record again (by id) changes
    nothing. Every method raises StoreError when the database cannot be read or written.
    """
