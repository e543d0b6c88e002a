"""`requirements/install.py`: uv gets pip's settings, and pip installs where uv cannot."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.small import ROOT

# Takes the place of pip: it notes its arguments, lists the settings of a file, and makes a uv that notes those that it gets.
PIP = """
import os, sys
from pathlib import Path

here = Path(__file__).parent
arguments = sys.argv[1:]
if arguments == ["config", "list"]:
    print((here / "settings").read_text())
elif "--target" in arguments:
    uv = Path(arguments[arguments.index("--target") + 1], "bin", "uv")
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\\necho $UV_FIND_LINKS $* >> {here}/uv\\nexit {(here / 'status').read_text()}\\n")
    uv.chmod(0o700)
else:
    with open(here / "pip", "a") as file:
        print(*arguments, file=file)
"""


def loaded():
    spec = importlib.util.spec_from_file_location("install", ROOT / "requirements/install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Machine:
    """Runs the script with the pip above, and reads what its pip and its uv were told."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch):
        self.folder = folder
        self.requirements = folder / "list.txt"
        self.requirements.write_text("numpy==2.3.1\ntorch==2.13.0\n")
        (folder / "fake.py").write_text(PIP)
        self.module = loaded()
        patch.setattr(self.module, "PIP", (sys.executable, str(folder / "fake.py")))
        patch.setattr(sys, "argv", ["install.py", str(self.requirements)])
        for name in [name for name in os.environ if name.startswith("UV_")]:
            patch.delenv(name)

    def install(self, settings: str, status: int = 0) -> int:
        (self.folder / "settings").write_text(settings)
        (self.folder / "status").write_text(str(status))
        return self.module.main()

    def told(self, name: str) -> list[str]:
        place = self.folder / name
        return place.read_text().splitlines() if place.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_the_environment_overrides_a_file_of_settings_as_in_pip():
    listed = ":env:.find-links='/b'\nglobal.find-links='/a'\ninstall.cert='/c'\nlist.format='json'"

    assert loaded().settings(listed) == {"find-links": "/b", "cert": "/c"}


def test_an_empty_setting_says_nothing_as_in_pip():
    listed = "global.index-url='https://mirror'\n:env:.index-url=''"

    assert loaded().settings(listed) == {"index-url": "https://mirror"}


def test_a_setting_of_pip_is_kept_whatever_the_environment_says(machine, monkeypatch):
    monkeypatch.setenv("UV_FIND_LINKS", "/elsewhere")

    machine.install("global.find-links='/wheels'")

    assert [line.split()[0] for line in machine.told("uv")] == ["/wheels"] * 3


def test_pip_installs_where_uv_cannot_be_run(machine):
    fake = machine.folder / "fake.py"
    fake.write_text(PIP.replace("0o700", "0o600"))

    status = machine.install("")

    assert len(machine.told("pip")) == 3
    assert status == 0


def test_two_values_of_a_setting_stand_as_uv_separates_them():
    variables = loaded().variables(
        {"find-links": "/a\n/b", "extra-index-url": "https://a\nhttps://b"}
    )

    assert variables["UV_FIND_LINKS"] == "/a,/b"
    assert variables["UV_EXTRA_INDEX_URL"] == "https://a https://b"


def test_uv_installs_with_the_settings_of_pip(machine: Machine):
    machine.install("global.find-links='/wheels'")

    assert [line.split()[0] for line in machine.told("uv")] == ["/wheels"] * 3
    assert machine.told("pip") == []


def test_pip_installs_where_it_has_a_setting_that_uv_lacks(machine: Machine):
    machine.install("global.no-binary='numpy'")

    assert machine.told("uv") == []
    assert len(machine.told("pip")) == 3


def test_pip_installs_after_a_failure_of_uv(machine: Machine):
    status = machine.install("", status=1)

    assert len(machine.told("uv")) == 1
    assert len(machine.told("pip")) == 3
    assert status == 0


def test_the_list_is_installed_without_resolving(machine: Machine):
    machine.install("")

    first, second, _ = machine.told("uv")
    assert "--no-deps" in first
    assert second.endswith("torch==2.13.0")
