"""Persistent store for measurements, models and service state: SQLite or PostgreSQL."""

from kongming.store.campaigns import ApplicationEntry, Campaign, Campaigns, StoredApplication
from kongming.store.models import ModelEntry
from kongming.store.records import Records
from kongming.store.reference import Reference
from kongming.store.reporting import Reporting
from kongming.store.retention import Retained, Retaining, Retention
from kongming.store.service_entries import (
    Accepted,
    Change,
    HourlyFingerprint,
    Promotion,
    Refused,
    Reported,
    StoredAgent,
    StoredForecast,
    StoredOperation,
    StoredRealised,
    StoredToken,
)
from kongming.store.service_history import ServiceHistory
from kongming.store.service_records import ServiceRecords
from kongming.store.urls import default_url
from kongming.store.watching import Watch, Watching

__all__ = [
    "Accepted",
    "ApplicationEntry",
    "Campaign",
    "Change",
    "HourlyFingerprint",
    "ModelEntry",
    "Promotion",
    "Reference",
    "Refused",
    "Reported",
    "Retained",
    "Retention",
    "Store",
    "StoredAgent",
    "StoredApplication",
    "StoredForecast",
    "StoredOperation",
    "StoredRealised",
    "StoredToken",
    "Watch",
    "default_url",
]


class Store(
    Records,
    Campaigns,
    ServiceRecords,
    ServiceHistory,
    Reporting,
    Watching,
    Retaining,
):
    """Complete store interface: ``with Store.open(url) as store: store.add_run(run)``.

    Writes are durable when the call returns; adding a record again (same id) changes
    nothing. Every method raises StoreError when the database cannot be read or written.
    """
