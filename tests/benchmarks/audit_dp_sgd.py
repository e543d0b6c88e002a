"""The audits of the preset audit-dp-sgd by themselves, without the pipeline: `make audit-dp-sgd`."""

from __future__ import annotations

from stages import audit, params


def main() -> None:
    value = params.read_yaml("params.yaml")
    value["audits"] = params.read_yaml("flows/presets/audit-dp-sgd.yaml")["audits"]
    for name, settings in params.validate(value).audits.items():
        audit.run(name, settings)


if __name__ == "__main__":
    main()
