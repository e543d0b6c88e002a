"""pip-audit on a frozen list but for the weaknesses that docs/team.md names: `python -m tests.benchmarks audit-packages`.

The exit status is 0 only if the service knew every package and the page names each weakness.
"""

import re
import subprocess
import sys

from tests.small import ROOT

IDENTIFIER = re.compile(r"\b(?:PYSEC-\d{4}-\d+|GHSA(?:-[0-9a-z]{4}){3}|CVE-\d{4}-\d+)\b")


def main() -> int:
    python, requirements = sys.argv[1:]
    explained = sorted(set(IDENTIFIER.findall((ROOT / "docs/team.md").read_text(encoding="utf-8"))))
    command = [
        python,
        "-m",
        "pip_audit",
        "--requirement",
        requirements,
        "--no-deps",
        "--disable-pip",
        "--strict",
    ]
    ignored = [part for name in explained for part in ("--ignore-vuln", name)]
    return subprocess.run([*command, "--progress-spinner", "off", *ignored]).returncode


if __name__ == "__main__":
    sys.exit(main())
