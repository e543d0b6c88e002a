"""`lethe verify`: check a certificate, and add evidence to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.console import JsonFlag, print_json


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate of `lethe certify`.")],
    draws: Annotated[int, typer.Option(help="Further answers to each question; 0 checks the hashes alone.")] = 200,
    model: Annotated[
        Path | None, typer.Option(help="The model folder on this machine. [default: as the certificate says]")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The questions. [default: as the certificate says]")] = None,
    prompt: Annotated[
        str | None, typer.Option(help="The template file. [default: as the certificate says]")
    ] = None,
    auditor: Annotated[str, typer.Option(metavar="NAME", help="Who draws.")] = "verifier",
    add: Annotated[
        list[Path] | None,
        typer.Option(metavar="OTHER", help="Add the audits of another copy of this certificate; repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="NEW", help="Write here instead of to FILE.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check that model, tokenizer, prompts, scorer and engine settings are those of the certificate, draw, and multiply.

    The draws come from a fresh stream. The e-values of all auditors multiply; the verdict holds at any stopping time. What
    differs is refused by name, with exit status 2.

    Example: `lethe verify certificate.json --draws 200 --model ./my-model --data forget.jsonl --auditor me`
    """
    from lethe.data.rows import read_rows
    from lethe.errors import BadFile, BadValue
    from lethe.evaluation.certificate import merged, read_certificate
    from lethe.steps.certify import how_of, verify

    if out is not None and (out.is_dir() or out.suffix.lower() != ".json"):
        raise BadValue("--out", str(out), "a file that ends in .json")
    if out is not None and out.exists() and not (file.exists() and out.samefile(file)):
        raise BadValue("--out", str(out), "a new file", "Join two certificates with --add.")
    if draws < 0:
        raise BadValue("--draws", draws, "a whole number of at least 0 (0: check the hashes alone)")
    found = read_certificate(file)
    for other in add or []:
        found = merged(found, read_certificate(other), other)
    places = {
        "model": model or Path(found.sources.get("model", "")),
        "data": data or Path(found.sources.get("data", "")),
    }
    for name, place in places.items():
        if not place.exists() or place == Path():
            raise BadFile(place, "no such file or folder", f"Name the {name} on this machine with --{name}.")
    how = how_of(found.settings, prompt)
    found = verify(found, file, places["model"], read_rows(places["data"]), how, draws, auditor)
    found.write(out or file)
    if as_json:
        print_json(found.as_dict() | {"file": str(out or file)})
        return
    typer.echo(f"The hashes agree: {', '.join(found.hashes)}.")
    typer.echo(found.sentence())
    typer.echo(f"The certificate is {out or file}.")
