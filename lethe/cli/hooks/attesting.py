"""What `lethe attest` adds: the files of the statement, and its gate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.cli.files import fresh
from lethe.cli.outcome import Arguments, Outcome, Values

if TYPE_CHECKING:
    from lethe.api import attesting
    from lethe.io.tries import Declared


def attest(
    call: Callable[..., attesting.Attestation],
    arguments: Arguments,
    out: Path = Path("statement.json"),
) -> Outcome:
    """Write the statement, and exit with status 1 where its bound is above the threshold, or its alpha above that of its try.

    Parameters
    ----------
    out : The envelope, or without a key the statement. NAME.draws.json and NAME.leaves.bin are written beside it, and of
        a served model NAME.served.json.
    """
    fresh("out", out, (".json",))
    attestation = call(**arguments)
    files = attestation.write(out)
    file, draws, leaves, *records = files
    written: Values = {"file": str(file), "draws": str(draws), "leaves": str(leaves)}
    written["statement"] = attestation.statement(draws.name)
    signed = "signed" if arguments.get("key") else "not signed"
    notes = [f"{file} is {signed}; {draws} has the counts, and {leaves} is for verifiers alone."]
    for record in records:
        written["served"] = str(record)
        notes.append(f"{record} tells which server answered, for those alone who may know it.")
    attempt = _try_of_statement(attestation)
    written["tries"] = {"count": attempt.number, "alpha": attempt.level, "kept": attempt.kept}
    notes.append(attempt.sentence("this gate on this model and data", "an alpha"))
    is_open = attestation.passed and attempt.is_allowed
    return Outcome(attestation, written, notes, int(not is_open))


def _try_of_statement(attestation: attesting.Attestation) -> Declared:
    """Which try of the first claim on this model, data and scorer these draws are; fresh draws are another one."""
    from lethe.io import tries

    about = attestation.about
    model = getattr(
        about.of, "text", about.model
    )  # the files of a folder; of a server its name in the run
    tested = ["attest", model, about.data_sha256, about.scorer]
    draws = [[drawn.id, drawn.n, list(drawn.leaks_at)] for drawn in attestation.draws.questions]
    seed = about.engine.get("seed")
    return tries.declare(tested, [seed, draws], attestation.claims[0].bound.alpha)
