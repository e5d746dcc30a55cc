"""Write a list of requirements with hashes from a report of pip: lock.py REPORT > FILE.

The report is that of ``pip install --dry-run --report REPORT``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HEAD = """\
# The versions of constraints.txt and the hashes of their files, for CPython {python} on {platform}.
# What was changed on its way is not installed:
#   pip install --require-hashes --requirement requirements.lock
#   pip install --no-deps --no-build-isolation .
# Another Python or platform needs other files. Renew the list there with: make lock
"""


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    about = report["environment"]
    platform = f"{about['platform_system']} {about['platform_machine']}"
    sys.stdout.write(HEAD.format(python=about["python_version"], platform=platform))
    lines = []
    for entry in report["install"]:
        name, version = entry["metadata"]["name"], entry["metadata"]["version"]
        digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    sys.stdout.writelines(sorted(lines, key=str.lower))


if __name__ == "__main__":
    main()
