"""Install a frozen list, and this clone in place, into the environment of the Python that runs this: `install.py LIST`.

uv takes a sixth of pip's processor time. It reads no settings of pip's, so they are handed over as uv's variables. pip does
the work where it has a setting that uv lacks, where there is no uv, and after every failure of uv, so that the user reads
pip's words. uv lies in a temporary folder, so that the environment has what the list has.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

UV = "uv==0.13.9"
PIP = (sys.executable, "-m", "pip")
# What uv calls a setting of pip's, and what stands between two values.
VARIABLES = {
    "cert": ("SSL_CERT_FILE", ""),
    "constraint": ("UV_CONSTRAINT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "index-url": ("UV_INDEX_URL", ""),
    "no-cache-dir": ("UV_NO_CACHE", ""),
    "proxy": ("ALL_PROXY", ""),
    "retries": ("UV_HTTP_RETRIES", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
# Settings of pip's that change no installed file.
WITHOUT_EFFECT = {
    *(
        "cache-dir",
        "compile",
        "config-file",
        "disable-pip-version-check",
        "no-color",
        "no-compile",
        "no-input",
    ),
    *(
        "no-python-version-warning",
        "no-warn-script-location",
        "progress-bar",
        "quiet",
        "require-virtualenv",
    ),
    *("root-user-action", "verbose"),
}


def settings(listed: str) -> dict[str, str]:
    """pip's settings for an installation by their names, from the lines of `pip config list`.

    The environment overrides the section `install`, and that the section `global`, and an empty value says nothing, as in
    pip.
    """
    found: dict[str, str] = {}
    for section in ("global", "install", ":env:"):
        for name, value in re.findall(rf"^{section}\.([\w-]+)=(.+)$", listed, re.MULTILINE):
            text = ast.literal_eval(value)
            if text:
                found[name] = text
    return found


def variables(of_pip: dict[str, str]) -> dict[str, str] | None:
    """uv's variables for these settings of pip's; None where uv cannot keep one of them."""
    # Like pip, uv takes the best version of all indexes, not that of the first index that has the package.
    made = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for name, value in of_pip.items():
        if name in WITHOUT_EFFECT:
            continue
        if name not in VARIABLES:
            return None
        variable, between = VARIABLES[name]
        made[variable] = between.join(value.split()) if between else value
    return made


def install(command: Sequence[str], requirements: Path, environment: dict[str, str]) -> bool:
    """Whether all of it is installed by this command, to which pip's options are known."""
    # The list is complete, so nothing is resolved. The second call adds the packages that a build of torch for another
    # machine needs beyond the list.
    torch = re.findall(r"^torch==\S+", requirements.read_text(encoding="utf-8"), re.MULTILINE)
    for what in (
        ["--no-deps", "-r", str(requirements)],
        torch,
        ["--no-deps", "--no-build-isolation", "-e", "."],
    ):
        if what and subprocess.run([*command, *what], env=environment).returncode != 0:
            return False
    return True


def by_uv(requirements: Path) -> bool:
    """Whether uv has installed all of it."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True).stdout
    environment = variables(settings(listed))
    if environment is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        here = ("--no-deps", "--only-binary", ":all:", "--target", folder)
        got = subprocess.run([*PIP, "install", "-qq", "--no-compile", *here, UV])
        if got.returncode != 0:
            return False
        uv = (str(Path(folder, "bin", "uv")), "pip", "install", "-q", "--python", sys.executable)
        try:
            return install(uv, requirements, {**os.environ, **environment})
        except (
            OSError
        ):  # a folder from which nothing may be run, or a machine without what uv is linked to
            return False


def main() -> int:
    requirements = Path(sys.argv[1])
    if by_uv(requirements):
        return 0
    print("uv cannot install here, so pip does, which takes longer.", file=sys.stderr)
    return int(
        not install((*PIP, "install", "-qq", "--no-compile"), requirements, dict(os.environ))
    )


if __name__ == "__main__":
    sys.exit(main())
