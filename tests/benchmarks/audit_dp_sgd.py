"""The audits of the preset audit-dp-sgd by themselves, without the pipeline: `python -m tests.benchmarks audit-dp-sgd`."""

from __future__ import annotations

from pathlib import Path

from lethe import config
from lethe.process import same_numbers
from stages import audit


def main() -> None:
    value = config.read_yaml("params.yaml")
    value["audits"] = config.read_yaml("flows/presets/audit-dp-sgd.yaml")["audits"]
    params = config.validate(value)
    for name in params.audits:
        audit.run(params, Path("data"), name)


if __name__ == "__main__":
    same_numbers()
    main()
