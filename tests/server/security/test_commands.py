"""``kongming-server init-tls`` and ``token``, from the command line to the gate."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kongming_server.commands.security_commands import init_tls, token
from kongming_server.security import TokenBook
from kongming_server.security.roles import Role

from kongming.records.errors import AccessError, InputError, UnknownNameError
from kongming.store import Store, StoredToken


def run(*args: str | Path) -> Result:
    command, *rest = map(str, args)
    return CliRunner().invoke(
        {"token": token, "init-tls": init_tls}[command], rest, catch_exceptions=True
    )


def document(*args: str | Path) -> Any:
    result = run(*args, "--json")
    assert result.exception is None, result.exception
    return json.loads(result.stdout)


def test_a_token_from_its_making_to_its_end(store_url: str) -> None:
    store = ("--store", store_url)
    created = document(
        "token", "add", "--role", "scheduler", "--expires", "1h", "--name", "k8s", *store
    )
    assert (created["role"], created["name"], created["state"]) == ("scheduler", "k8s", "valid")
    with Store.open(store_url) as opened:
        book = TokenBook(opened.tokens)
        book.load()
        assert book.find(created["token"], time.time()).role == "scheduler"
        with pytest.raises(AccessError, match="expired"):
            book.find(created["token"], time.time() + 3601)
        listed = document("token", "list", *store)["tokens"]
        assert [entry["id"] for entry in listed] == [created["id"]]
        assert document("token", "revoke", created["id"], *store)["state"] == "revoked"
        book.load()
        with pytest.raises(AccessError, match="revoked"):
            book.find(created["token"], time.time())
    assert "revoked before" in run("token", "revoke", created["id"], *store).stdout


@pytest.mark.parametrize("args", [("list",), ("revoke", "abc"), ("release", "n1")])
def test_a_mistyped_store_is_refused_and_not_made(tmp_path: Path, args: tuple[str, ...]) -> None:
    path = tmp_path / "typo.db"
    result = run("token", *args, "--store", f"sqlite:///{path}")
    assert isinstance(result.exception, InputError)
    assert "does not exist" in str(result.exception)
    assert not path.exists()


def test_without_tokens_the_store_is_named(store_url: str) -> None:
    Store.open(store_url).close()
    result = run("token", "list", "--store", store_url)
    assert result.stdout == ""
    assert "There is no token in " in result.stderr


def test_the_secret_is_nowhere_but_in_the_callers_hands(tmp_path: Path, store_url: str) -> None:
    store = ("--store", store_url)
    shown = run("token", "add", "--role", "agent", *store).stdout.splitlines()[-1]
    secret = shown.split("_", 2)[2]
    assert secret not in run("token", "list", *store).output
    assert secret not in json.dumps(document("token", "list", *store))
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path


def test_a_token_in_a_file_is_readable_by_its_owner_alone(tmp_path: Path, store_url: str) -> None:
    path = tmp_path / "token"
    result = run("token", "add", "--role", "agent", "--out", path, "--store", store_url)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text().strip()
    assert text not in result.output
    again = run("token", "add", "--role", "agent", "--out", path, "--store", store_url)
    assert isinstance(again.exception, InputError)
    assert path.read_text().strip() == text
    assert len(document("token", "list", "--store", store_url)["tokens"]) == 1


def test_a_token_that_could_not_be_kept_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "no-store").write_text("no database")
    url = f"sqlite:///{tmp_path / 'no-store'}"
    result = run("token", "add", "--role", "agent", "--out", tmp_path / "token", "--store", url)
    assert result.exception is not None
    assert not (tmp_path / "token").exists()


@pytest.mark.parametrize(
    ("args", "field"),
    [
        (("--role", "agent", "--expires", "soon"), "expires"),
        (("--role", "agent", "--expires", "999999w"), "expires"),
        (("--role", "agent", "--name", "a\nb"), "name"),
    ],
)
def test_wrong_options_are_named(store_url: str, args: tuple[str, ...], field: str) -> None:
    result = run("token", "add", *args, "--store", store_url)
    assert isinstance(result.exception, InputError)
    assert result.exception.field == field
    with Store.open(store_url) as store:
        assert store.tokens() == []


def test_a_token_whose_end_is_no_date_is_listed_with_the_others(store_url: str) -> None:
    far = StoredToken("far", "monitor", "0" * 64, created_at=1.0, expires_at=606595428321.0)
    with Store.open(store_url) as store:
        store.add_token(far)
    created = document("token", "add", "--role", "agent", "--store", store_url)
    listed = document("token", "list", "--store", store_url)["tokens"]
    assert [(entry["id"], entry["expires_at"]) for entry in listed] == [
        ("far", None),
        (created["id"], None),
    ]
    assert run("token", "list", "--store", store_url).stdout.count("valid without an end") == 2


def test_a_role_that_is_none_is_refused(store_url: str) -> None:
    assert run("token", "add", "--role", "king", "--store", store_url).exit_code == 2


def test_revoking_what_is_not_there_repeats_no_secret(store_url: str) -> None:
    created = document("token", "add", "--role", "agent", "--store", store_url)
    result = run("token", "revoke", created["token"], "--store", store_url)
    assert isinstance(result.exception, UnknownNameError)
    assert created["token"] not in str(result.exception)
    assert created["token"].split("_", 2)[2] not in str(result.exception)


def test_the_store_of_the_configuration_is_used(tmp_path: Path, store_url: str) -> None:
    config = tmp_path / "server.toml"
    config.write_text(f'[server]\nstore = "{store_url}"\n')
    created = document("token", "add", "--role", "operator", "--config", config)
    assert [entry["id"] for entry in document("token", "list", "--store", store_url)["tokens"]] == [
        created["id"]
    ]


def test_init_tls_says_what_comes_next(tmp_path: Path) -> None:
    result = run("init-tls", tmp_path / "tls", "--name", "node-7.example")
    assert result.exit_code == 0
    assert "--certificate" in result.stderr
    assert "node-7.example" in result.stderr
    assert len(result.stdout.split()) == 2 * (2 + len(Role))
    renewed = document("init-tls", tmp_path / "tls", "--renew", "--days", "7")
    assert "ca.key" not in renewed["files"]
    assert "BEGIN" not in result.output
