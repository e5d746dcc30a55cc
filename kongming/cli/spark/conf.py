"""``kongming spark conf``: the settings for the most detailed log, for each way of submitting."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import click

from kongming.cli import options, output
from kongming.cli.examples import examples

SETTINGS = {
    "spark.eventLog.enabled": "true",
    # A log in files is there while the application runs, also on object stores.
    "spark.eventLog.rolling.enabled": "true",
    "spark.eventLog.rolling.maxFileSize": "128m",
    "spark.eventLog.compress": "true",
    "spark.eventLog.compression.codec": "zstd",
    # Peaks of memory by stage and executor, and the driver's garbage collections.
    "spark.eventLog.logStageExecutorMetrics": "true",
    "spark.executor.metrics.pollingInterval": "1s",
    # Which blocks were cached, and how large.
    "spark.eventLog.logBlockUpdates.enabled": "true",
    # Short tasks overflow the default of 10000 events, and what overflows is dropped.
    "spark.scheduler.listenerbus.eventqueue.eventLog.capacity": "100000",
}


def _spark_submit(settings: dict[str, str]) -> str:
    lines = [f"  --conf {shlex.quote(f'{key}={value}')} \\" for key, value in settings.items()]
    return "\n".join(["spark-submit \\", *lines, "  APPLICATION ..."])


def _yarn(settings: dict[str, str]) -> str:
    width = max(map(len, settings))
    lines = [f"{key:{width}} {value}" for key, value in settings.items()]
    return "\n".join(["# In spark-defaults.conf.", *lines])


def _kubernetes(settings: dict[str, str]) -> str:
    lines = [f"    {key}: {json.dumps(value)}" for key, value in settings.items()]
    return "\n".join(["# In a SparkApplication of the operator.", "spec:", "  sparkConf:", *lines])


def _emr(settings: dict[str, str]) -> str:
    return json.dumps([{"Classification": "spark-defaults", "Properties": settings}], indent=2)


_DATABRICKS = {"s3": "S3", "/Volumes/": "VOLUMES"}
"""What Databricks calls the storage, by how a folder there begins."""


def _databricks(settings: dict[str, str]) -> str:
    folder = settings["spark.eventLog.dir"]
    kind = next((kind for start, kind in _DATABRICKS.items() if folder.startswith(start)), "DBFS")
    policy = {
        "cluster_log_conf.type": {"type": "fixed", "value": kind},
        "cluster_log_conf.path": {"type": "fixed", "value": folder},
    }
    policy |= {
        f"spark_conf.{key}": {"type": "fixed", "value": value}
        for key, value in _databricks_settings(settings).items()
    }
    return json.dumps(policy, indent=2)


def _databricks_settings(settings: dict[str, str]) -> dict[str, str]:
    """Databricks writes the log itself, where the cluster's logs are delivered."""
    own = ("spark.eventLog.enabled", "spark.eventLog.dir", "spark.eventLog.co", "spark.eventLog.ro")
    return {key: value for key, value in settings.items() if not key.startswith(own)}


FORMS: dict[str, tuple[str, Callable[[dict[str, str]], str]]] = {
    "spark-submit": ("file:///tmp/spark-events", _spark_submit),
    "yarn": ("hdfs:///spark-events", _yarn),
    "kubernetes": ("s3a://BUCKET/spark-events", _kubernetes),
    "emr": ("s3://BUCKET/spark-events", _emr),
    "databricks": ("dbfs:/cluster-logs", _databricks),
}
"""By name: the default folder of logs, and how the settings are written."""


@click.command(
    "conf",
    short_help="Print the settings for the most detailed log.",
    epilog=examples(
        "kongming spark conf", "kongming spark conf --for kubernetes --dir s3a://logs/spark"
    ),
)
@click.option(
    "--for",
    "form",
    type=click.Choice(list(FORMS)),
    default="spark-submit",
    show_default=True,
    help="How applications are submitted.",
)
@click.option("--dir", "folder", metavar="URL", help="Where logs are written; it must exist.")
@options.json_option
def command(form: str, folder: str | None, as_json: bool) -> None:
    """Print the settings under which Spark writes the most detailed log.

    Spark 2.4 to 4; a version that does not know one of them ignores it.
    """
    from kongming.records.errors import InputError

    if folder is not None and not folder.strip():
        raise InputError("is empty.", field="--dir", value=folder, allowed="a folder, or its URL")
    default, write = FORMS[form]
    settings = {"spark.eventLog.dir": default if folder is None else folder} | SETTINGS
    text = write(settings)
    if as_json:
        if form == "databricks":
            settings = _databricks_settings(settings)
        output.emit_json({"for": form, "settings": settings, "text": text})
        return
    click.echo(text)
