"""Identity of an application: a hash over everything that determines its work."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePath

from kongming.records.application import SCRATCH, Application, Command

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_CACHES = {"warm": "warm", "cold": "cold, with the files that commands name"}
"""What the caches of applications mean. Profiles in which cold meant another thing (everything that
root could drop, or the scratch folder alone) are of other identities."""

_SHELL_LINE = re.compile(r"-[a-z]*c")
_INTERPRETER = re.compile(
    r"(?:(?:ba|da|k|z)?sh|python|pypy|perl|ruby|lua|luajit|node|php|Rscript|julia|octave|tclsh)"
    r"[\d.]*"
)
_NO_SCRIPT = ("-c", "-e", "-m")
"""Options of interpreters after which no script is named."""


def identity(app: Application, search_path: str | None = None) -> str:
    """Compute the identity, 16 hexadecimal digits; runs of different identities are never mixed.

    Hashes the commands (command, load, set-up, prepare), the environment, kind, CPUs, cache and
    metric, and the content of the executable that the command names, looked up in
    ``search_path`` (default: PATH, the application's own if it sets one). Names, time limits,
    checks and the folder are excluded: they do not affect the measurements.
    """
    executable = find_executable(app, search_path)
    document = {
        "command": _plain(app.command),
        "kind": app.kind,
        "load": _plain(app.load),
        "load_cpu": app.load_cpu,
        "setup": _plain(app.setup),
        "prepare": _plain(app.prepare),
        "env": dict(app.env),
        "cpus": app.cpus,
        "cache": _CACHES[app.cache],
        "metric": None
        if app.metric is None
        else [app.metric.pattern, app.metric.unit, app.metric.better],
        "executable": None if executable is None else file_hash(executable),
    }
    text = json.dumps(document, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def identities_of(apps: Mapping[str, Application]) -> dict[str, str]:
    """Compute the identities of applications, by name, in the order of names."""
    return {name: identity(app) for name, app in sorted(apps.items())}


def find_executable(app: Application, search_path: str | None = None) -> Path | None:
    """Find the executable named by argv[0] or the first word of the shell line.

    None for a shell builtin and for a file that set-up creates in the scratch folder (set-up
    is part of the identity).
    """
    name = first_word(app.command)
    if not name or SCRATCH in name:
        return None
    if "/" in name:
        folder = Path.cwd() if app.workdir is None else Path(app.workdir)
        path = folder / name
        return path if path.is_file() else None
    app_path = app.env.get("PATH")
    located = shutil.which(name, path=search_path if search_path is not None else app_path)
    return None if located is None else Path(located)


def files_named(app: Application) -> list[Path]:
    """Return the files that words of an application's commands name, in its folder or by a path:
    scripts and inputs, which its identity leaves out."""
    return files_of(app, (word for command in _commands(app) for word in _words(command)))


def inputs_named(app: Application) -> list[Path]:
    """Return the files that an application's commands name in any way that can be read off them:
    those of ``files_named``, and those after ``=``, after a redirection, in a shell line after
    ``-c``, and below ``~`` in a shell line.

    What is registered has digests of ``files_named``, which therefore stays as it is.
    """
    words = dict.fromkeys(word for command in _commands(app) for word in _inputs(command))
    return files_of(app, words)


def scripts_named(app: Application) -> list[str]:
    """Return the words of an application's commands that are given to an interpreter as its script,
    whether or not a file is there: ``prog.py`` of ``python3 -u prog.py {n}``."""
    lines = [_shell_words(c) if isinstance(c, str) else list(c) for c in _commands(app)]
    return list(dict.fromkeys(script for words in lines for script in _scripts(words)))


def _scripts(words: Sequence[str]) -> Iterator[str]:
    for place, word in enumerate(words):
        if not _INTERPRETER.fullmatch(PurePath(word).name):
            continue
        for following in words[place + 1 :]:
            if not following.startswith("-"):
                yield following
            elif following in _NO_SCRIPT:
                break
            else:
                continue
            break


def _commands(app: Application) -> list[Command]:
    commands = (app.command, app.load, app.setup, app.prepare)
    return [command for command in commands if command is not None]


def files_of(app: Application, words: Iterable[str]) -> list[Path]:
    """Return the files that words name, in an application's folder or by a path."""
    folder = Path.cwd() if app.workdir is None else Path(app.workdir)
    files = []
    for word in words:
        try:
            if word and (folder / word).is_file():
                files.append(folder / word)
        except (OSError, ValueError):  # a word too long for a name, or with a zero byte
            continue
    return files


def _inputs(command: Command) -> Iterator[str]:
    words = list(_words(command))
    yield from words
    if isinstance(command, str):
        words = _shell_words(command)
        yield from words
        yield from (os.path.expanduser(word) for word in words if word.startswith("~"))  # noqa: PTH111  a word, not a path
    yield from (value for _, equals, value in (word.partition("=") for word in words) if equals)
    for option, line in pairwise(words):
        if _SHELL_LINE.fullmatch(option):
            yield from _inputs(line)


def _shell_words(line: str) -> list[str]:
    """Split a line as a shell does, also at redirections and at the ends of commands without a
    space next to them."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # as in _words
        return line.split()


def folders_named(app: Application) -> list[str]:
    """Return the words of what is timed that name a folder which is there."""
    folder = Path.cwd() if app.workdir is None else Path(app.workdir)
    words = [
        word
        for command in (app.command, app.load)
        if command is not None
        for word in _words(command)
    ]
    return [word for word in words if word and _is_folder(folder / word)]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # as in files_named
        return False


def file_hash(path: Path) -> str | None:
    """Return the SHA-256 of a file, None if it cannot be read; cached until it changes."""
    try:
        status = path.stat()
        return _hash(str(path.resolve()), status.st_mtime_ns, status.st_size)
    except OSError:
        return None


@functools.lru_cache(maxsize=256)
def _hash(path: str, mtime_ns: int, size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def first_word(command: Command) -> str:
    """Return the program of a command: argv[0], or the first word of a shell line that is not an
    assignment; empty without any."""
    words = _words(command)
    if not isinstance(command, str):
        return words[0]
    # A line may begin with variable assignments: LC_ALL=C sort ...
    command_words = [word for word in words if not _ASSIGNMENT.match(word)]
    if command_words[:1] in (["exec"], ["env"], ["command"]) and len(command_words) > 1:
        command_words = [word for word in command_words[1:] if not word.startswith("-")]
    return os.fspath(command_words[0]) if command_words else ""


def _words(command: Command) -> Sequence[str]:
    if not isinstance(command, str):
        return command
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # an unbalanced quote: the shell will report it
        return command.split()


def _plain(command: str | tuple[str, ...] | None) -> str | list[str] | None:
    return list(command) if isinstance(command, tuple) else command
