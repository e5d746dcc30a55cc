"""What `make site` adds to mkdocs: pages outside docs/ that links lead to, at the same distance.

The pages of docs/ refer to those of benchmarks/ and examples/, and these to their tables and
figures. In the site docs/ is the root, so that such links lose their ``../``. The repository's
README is the site's first page.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs/"
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Add every file outside docs/ that is reached from a page by links."""
    waiting = [DOCS + file.src_uri for file in files.documentation_pages()]
    while waiting:
        page = waiting.pop()
        for link in _LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            target = _target(page, link)
            added = files.get_file_from_path(_in_site(target)) is not None
            if added or target.startswith((DOCS, "..")) or not (ROOT / target).is_file():
                continue
            files.append(File.generated(config, target, abs_src_path=os.fspath(ROOT / target)))
            if target.endswith(".md"):
                waiting.append(target)
    return files


def on_nav(nav: Any, files: Files, **_: Any) -> Any:
    """Refuse to leave out what a page refers to: mkdocs mentions that, and goes on."""
    excluded = [
        file.src_uri for file in files if file.generated_by and file.inclusion.is_excluded()
    ]
    if excluded:
        raise PluginError(f"Pages refer to what exclude_docs leaves out: {', '.join(excluded)}")
    return nav


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between places of the repository into links between places of the site."""
    uri = page.file.src_uri
    source = uri if page.file.generated_by else DOCS + uri

    def moved(match: re.Match[str]) -> str:
        target = _in_site(_target(source, match[0]))
        return posixpath.relpath(target, posixpath.dirname(uri) or ".")

    return _LINK.sub(moved, markdown)


def _target(page: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _in_site(path: str) -> str:
    return "index.md" if path == "README.md" else path.removeprefix(DOCS)
