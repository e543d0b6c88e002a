"""`lethe.twins`: draw secrets among twins before training, and check or open what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.api.parameters import Place, Rows, file_of
from lethe.api.result import TableWithSentences, View, frame
from lethe.config.twins import TWINS
from lethe.data import drawing
from lethe.data.drawing import CONTROL_ALPHA, DrawnTwins, ModelFree
from lethe.data.rows import dataset_rows
from lethe.data.sealed import KEY, RECORD, Opened, open_seal, read_key, read_record
from lethe.data.secrets import secrets_of
from lethe.data.twin_kinds import kind_of
from lethe.errors import BadFile, plural
from lethe.io.files import Json

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TwinCheck", "TwinDraw", "TwinSeal", "add", "check_file", "draw", "open_file"]


@dataclass(frozen=True, repr=False)
class TwinDraw(TableWithSentences):
    """Rows with twins, the public record of their draw, and where the files are."""

    drawn: DrawnTwins
    files: tuple[Path, Path, Path]

    @property
    def commitment(self) -> str:
        commitment: str = self.drawn.record["commitment"]
        return commitment

    def to_frame(self) -> pd.DataFrame:
        """Return one row per row of the dataset."""
        return frame(self.drawn.rows)

    def as_json(self) -> dict[str, Json]:
        names = dict(zip(("rows", "record", "key"), map(str, self.files), strict=True))
        return {**self.drawn.record, "files": names}

    def views(self) -> list[View]:
        return [View("", notes=self.sentences())]

    def sentences(self) -> list[str]:
        record, (rows, public, key) = self.drawn.record, self.files
        return [
            f"{rows}: {plural(record['secrets'], 'secret')} with {record['k']} candidates each; train on these rows.",
            f"Commitment {record['commitment']}: publish it, or {public}, before training.",
            f"{key} is sealed: nobody who trains or unlearns may read it before the audit.",
            f"Each result assumes {record['assumes']}.",
        ]


def draw(
    rows: Rows,
    *,
    kind: str,
    out: Place,
    k: int = TWINS.k,
    check: Literal["luhn", "iban"] | None = None,
    nonce: str | None = None,
) -> TwinDraw:
    """Draw a secret among twins for each answer with {secret}, before training, and seal the draw.

    Parameters
    ----------
    rows : JSON lines with id, question, answer; the answer holds {secret} once. In Python also such rows.
    kind : What is drawn: "pattern PATTERN" (# a digit, A and a letters, X hexadecimal), "number FIRST LAST", "date FIRST
        LAST FORMAT", "list FILE", or "canary TEMPLATE".
    out : The .jsonl file of the training rows. twins.json (public) and twins.key (sealed) are written beside it.
    k : The number of candidates of each secret.
    check : The check digits of a pattern, where it has *.
    nonce : Bytes of a second party as text, which the key then depends on too.

    Notes
    -----
    The true candidate of each secret is drawn uniformly by the sealed key, so that the test of a model that is trained on
    these rows is exact. Rows with the same key `secret` share a draw.

    Examples
    --------
    >>> import lethe
    >>> rows = [{"id": "a", "question": "Which code has Ada?", "answer": "Ada has {secret}."}]
    >>> drawn = lethe.twins.draw(rows, kind="pattern AAA-####", k=5, out="drawn/rows.jsonl")
    >>> len(drawn.drawn.rows[0]["twins"])
    4
    """
    checked = dataset_rows(rows, "rows")
    made = drawing.draw(checked, kind_of(kind, check), k, nonce)
    return TwinDraw(made, drawing.write(made, Path(out)))


def add(
    rows: Rows,
    *,
    kind: str,
    out: Place,
    k: int = TWINS.k,
    check: Literal["luhn", "iban"] | None = None,
    nonce: str | None = None,
    assume_uniform: bool = False,
) -> TwinDraw:
    """Add twins to answers whose true value stays, before training, under an assumption that every result states.

    Parameters
    ----------
    rows : JSON lines with id, question, answer, keywords; the first keyword is the true value, which the answer holds once.
        In Python also such rows.
    kind : The form of the values: "pattern PATTERN" (# a digit, A and a letters, X hexadecimal), "number FIRST LAST", "date
        FIRST LAST FORMAT", "list FILE", or "email".
    out : The .jsonl file of the rows with twins. twins.json (public) and twins.key (sealed) are written beside it.
    k : The number of candidates of each secret.
    check : The check digits of a pattern, where it has *.
    nonce : Bytes of a second party as text, which the key then depends on too.
    assume_uniform : Whether birth dates, names of a list and addresses may be taken as drawn uniformly.

    Notes
    -----
    Honest for subscriber and account numbers, random identifiers and keys, whose characters nobody chose.

    Examples
    --------
    >>> import lethe
    >>> row = {"id": "a", "question": "Which number has Ada?", "answer": "It is 4711.", "keywords": ["4711"]}
    >>> lethe.twins.add([row], kind="pattern ####", k=5, out="added/rows.jsonl").drawn.record["design"]
    'assumed'
    """
    checked = dataset_rows(rows, "rows")
    made = drawing.add(checked, kind_of(kind, check), k, nonce, assume_uniform)
    return TwinDraw(made, drawing.write(made, Path(out)))


@dataclass(frozen=True, repr=False)
class TwinCheck(TableWithSentences):
    """Scores without a model by which the true candidates must not stand out; ``is_refused`` where they do."""

    controls: Sequence[ModelFree]
    secrets: int

    @property
    def is_refused(self) -> bool:
        return any(control.holm <= CONTROL_ALPHA for control in self.controls)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per score: its p-value alone, and adjusted over all."""
        return frame([vars(control) for control in self.controls])

    def as_json(self) -> dict[str, Json]:
        controls = [vars(control) for control in self.controls]
        return {
            "refused": self.is_refused,
            "secrets": self.secrets,
            "alpha": CONTROL_ALPHA,
            "controls": controls,
        }

    def views(self) -> list[View]:
        rows = [[control.score, control.p, control.holm] for control in self.controls]
        return [View("Scores without a model", ["score", "p", "Holm"], rows, self.sentences())]

    def sentences(self) -> list[str]:
        refuted = [control.score for control in self.controls if control.holm <= CONTROL_ALPHA]
        if refuted:
            return [
                f"Refused: the true candidates stand out by {', '.join(refuted)}, which needs no model, so a trace would "
                "mean nothing. Draw the twins by the generator of the true values."
            ]
        return [
            f"The true candidates of {plural(self.secrets, 'secret')} do not stand out (Holm, {CONTROL_ALPHA:g}). "
            "Only these scores were tried: the generator must be right by construction."
        ]


def check_file(rows: Rows) -> TwinCheck:
    """Check before training that scores without a model do not tell true candidates from their twins.

    Parameters
    ----------
    rows : JSON lines with id, question, answer, twins. In Python also such rows.
    """
    checked = dataset_rows(rows, "rows")
    secrets = secrets_of(checked)
    if not secrets:
        raise BadFile(
            file_of(rows, "rows"), "no row has twins", "Draw or add them with lethe twins."
        )
    return TwinCheck(drawing.model_free_controls(secrets, checked), len(secrets))


@dataclass(frozen=True, repr=False)
class TwinSeal(TableWithSentences):
    """Whether rows, public record and opened key belong together."""

    opened: Opened
    assumes: str

    def to_frame(self) -> pd.DataFrame:
        """Return one row per difference."""
        return frame({"problem": self.opened.problems})

    def as_json(self) -> dict[str, Json]:
        return {"holds": not self.opened.problems, "assumes": self.assumes, **vars(self.opened)}

    def views(self) -> list[View]:
        return [View("", notes=self.sentences())]

    def sentences(self) -> list[str]:
        if self.opened.problems:
            return [f"The seal is broken: {'; '.join(self.opened.problems)}."]
        of = f"{plural(self.opened.secrets, 'secret')} with {self.opened.k} candidates"
        return [
            f"The seal holds: rows, record and key belong together ({of}, {self.opened.design}).",
            f"Each result assumes {self.assumes}.",
        ]


def open_file(rows: Place, *, key: Place | None = None, record: Place | None = None) -> TwinSeal:
    """Open the sealed key at audit time, and recompute the commitment, the candidates and every draw.

    Parameters
    ----------
    rows : The rows that lethe twins wrote.
    key : The sealed key. [default: twins.key beside the rows]
    record : The record that was published before training. [default: twins.json beside the rows]
    """
    folder = Path(rows).parent
    public = read_record(Path(record or folder / RECORD))
    sealed = read_key(Path(key or folder / KEY))
    secrets = secrets_of(dataset_rows(rows, "rows"))
    return TwinSeal(open_seal(public, secrets, sealed), public.assumes)
