"""pip-audit on a frozen list, held against the explanations in docs/team.md: `python -m tests.benchmarks audit-packages`.

The exit status is 0 only if the service knew every package and each weakness it named is explained in the document.

pip-audit asks for the page of each release. An index that has only a page per project, which is of the newest release, still
tells the weaknesses of each package that is frozen at its newest release; the others are named as not audited.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tests.small import ROOT

DOCUMENT = ROOT / "docs/team.md"
PAGE = "https://pypi.org/pypi/{name}/json"
FROZEN = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
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


def completed(
    told: Mapping[str, Any], frozen: Mapping[str, str], page_of: Callable[[str], Mapping[str, Any] | None]
) -> dict[str, Any]:
    """pip-audit's JSON, with the projects' pages (of their newest releases) for the releases' pages that the index lacks."""
    packages = []
    for package in told["dependencies"]:
        name = package["name"]
        page = page_of(name) if "skip_reason" in package else None
        if page is None:
            packages.append(package)
            continue
        newest, version = page["info"]["version"], frozen[name]
        if newest != version:
            reason = (
                f"{version} is not the newest release ({newest}), and the index has a page of the newest alone"
            )
            packages.append({"name": name, "skip_reason": reason})
            continue
        weaknesses = [
            {"id": each["id"], "aliases": each.get("aliases", []), "fix_versions": each.get("fixed_in", [])}
            for each in page.get("vulnerabilities") or []
            if not each.get("withdrawn")
        ]
        packages.append({"name": name, "version": version, "vulns": weaknesses})
    return {"dependencies": packages}


def frozen_versions(text: str) -> dict[str, str]:
    """The versions of a frozen list, by names in PyPI's normal form: small letters, one hyphen for each run of ``-_.``."""
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in FROZEN.findall(text)}


def page_of(name: str) -> dict[str, Any] | None:
    """PyPI's page of a project, which pip-audit's own service writes for its newest release."""
    import httpx

    try:
        answer = httpx.get(PAGE.format(name=name), follow_redirects=True, timeout=60)
        return answer.json() if answer.is_success else None
    except (httpx.HTTPError, ValueError):
        return None


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
    with open(requirements, encoding="utf-8") as file:
        frozen = frozen_versions(file.read())
    told = completed(told, frozen, page_of)
    open_, left = verdict(told, explained)
    audited = len(told["dependencies"]) - len(left)
    for line in (*open_, *left):
        print(line)
    print(f"{audited} packages audited, {len(left)} not audited, {len(open_)} weaknesses without explanation")
    return 1 if open_ or left else 0


if __name__ == "__main__":
    sys.exit(main())
