"""pip-audit on a frozen list, held against the explanations in docs/faults.md: `make audit-packages`.

The exit status is 0 only if the service knew every package and each weakness it named is explained in the document.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.small import ROOT

DOCUMENT = ROOT / "docs/faults.md"
IDENTIFIER = re.compile(r"\b(?:PYSEC-\d{4}-\d+|GHSA(?:-[0-9a-z]{4}){3}|CVE-\d{4}-\d+)\b")


def verdict(told: Mapping[str, Any], explained: set[str]) -> tuple[list[str], list[str]]:
    """The weaknesses that no explanation names, and the packages that were not audited, from pip-audit's JSON."""
    open_, left = [], []
    for package in told["dependencies"]:
        if "skip_reason" in package:
            left.append(f"{package['name']}: {package['skip_reason']}")
            continue
        for weakness in package["vulns"]:
            names = {weakness["id"], *weakness.get("aliases", [])}
            if not names & explained:
                mended = ", ".join(weakness.get("fix_versions", [])) or "no release"
                open_.append(f"{package['name']} {package['version']}: {weakness['id']} (mended in {mended})")
    return open_, left


def main() -> int:
    python, requirements = sys.argv[1:]
    command = [python, "-m", "pip_audit", "--requirement", requirements, "--no-deps", "--disable-pip"]
    done = subprocess.run(
        [*command, "--format", "json", "--progress-spinner", "off"], stdout=subprocess.PIPE, text=True
    )
    try:
        told = json.loads(done.stdout)
    except ValueError:
        print("pip-audit reached no service that knows weaknesses; its own words are above.", file=sys.stderr)
        return 1
    explained = set(IDENTIFIER.findall(DOCUMENT.read_text(encoding="utf-8")))
    open_, left = verdict(told, explained)
    audited = len(told["dependencies"]) - len(left)
    for line in (*open_, *left):
        print(line)
    print(
        f"{audited} packages audited, {len(left)} unknown to the service, {len(open_)} weaknesses without explanation"
    )
    return 1 if open_ or left else 0


if __name__ == "__main__":
    sys.exit(main())
