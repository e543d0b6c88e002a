"""What `lethe certify` and `lethe verify` add: the file of the certificate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.cli.files import fresh
from lethe.cli.outcome import Arguments, Outcome
from lethe.errors import BadValue, check

if TYPE_CHECKING:
    from lethe.api import attesting, certificates


def certify(
    call: Callable[..., certificates.ShownCertificate],
    arguments: Arguments,
    out: Path = Path("certificate.json"),
) -> Outcome:
    """Write the certificate.

    Parameters
    ----------
    out : The certificate.
    """
    if fresh("out", out, (".json",)).exists():
        raise BadValue("out", str(out), "a new file", "`lethe verify` adds to a certificate.")
    certificate = call(**arguments)
    certificate.write(out)
    notes = [f"The certificate is {out}; lethe verify {out} --draws 200 adds to it."]
    if certificate.committed is not None:
        notes.append(
            f"{out.stem}.draws.json and {out.stem}.leaves.bin beside it let a verifier check single draws (--check)."
        )
    return Outcome(certificate, {"file": str(out)}, notes)


def verify(
    call: Callable[..., certificates.ShownCertificate | attesting.Verification],
    arguments: Arguments,
    out: Path | None = None,
) -> Outcome:
    """Write the grown certificate.

    Parameters
    ----------
    out : Write here instead of to FILE.
    """
    from lethe.api.attesting import Verification
    from lethe.certificates.spot_check import REFUTED

    file = arguments["file"]
    if (
        out is not None
        and fresh("out", out, (".json",)).exists()
        and not (file.exists() and out.samefile(file))
    ):
        raise BadValue("out", str(out), "a new file", "Join two certificates with --add.")
    certificate = call(**arguments)
    if isinstance(certificate, Verification):
        check(out is None, "out", str(out), "left out: nothing is added to a statement")
        return Outcome(certificate)
    notes = [f"The hashes agree: {', '.join(certificate.hashes)}."]
    checked = certificate.checked
    is_refuted = checked is not None and checked.verdict == REFUTED
    if is_refuted or not all(certificate.repeated.values()):
        return Outcome(certificate, {"file": None}, [*notes, "No certificate is written."], 1)
    place = out or file
    certificate.write(place)
    notes.append(f"The certificate is {place}.")
    if arguments.get("add"):
        notes.append(
            "Only the join of all copies has the level: a copy left out is a draw left out."
        )
    return Outcome(certificate, {"file": str(place)}, notes)
