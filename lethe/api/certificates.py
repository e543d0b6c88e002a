"""`lethe.certify` and `lethe.verify`: a claim about a model, with evidence to which other auditors can add."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.result import TableWithSentences, View
from lethe.config.evaluating import SAMPLE
from lethe.errors import BadFile, BadValue
from lethe.evaluation import certificate

if TYPE_CHECKING:
    import pandas as pd

DRAWS = 200


@dataclass(frozen=True, repr=False)
class Certificate(certificate.Certificate, TableWithSentences):
    """The result of `certify` and `verify`; ``write`` writes the file that `verify` reads.

    ``own``: whether this call drew, so that the last audit is the caller's. ``repeated``: whether the repeated draws of each
    auditor gave the stored leaks.
    """

    own: bool = True
    repeated: Mapping[str, bool] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per question: its answers, the leaks among them, and the logarithm of its e-value."""
        import pandas as pd

        leaks, n = self.counts()
        return pd.DataFrame({"id": self.questions, "n": n, "leaks": leaks, "log_e_value": self.log_e_values()})

    def sentences(self) -> list[str]:
        """Return the claim, the verdict by one's own draws alone, and the verdict by the draws of all auditors."""
        lines = [self.statement()]
        if self.own:
            lines.append(f"Your own draws alone: {self.alone(self.audits[-1]).sentence()}")
        if len(self.audits) > 1 or not self.own:
            lines.append(f"All auditors: {self.sentence()}")
        lines += [
            f"The draws of {name}, repeated: "
            + ("the same leaks." if same else "other leaks than the file states.")
            for name, same in self.repeated.items()
        ]
        return lines

    def as_json(self) -> dict[str, object]:
        """The content of the file, and what the caller's own draws say."""
        own = self.alone(self.audits[-1]) if self.own else None
        return self.as_dict() | {
            "own": own and {"auditor": own.audits[0].auditor, "log_e_value": own.log_e(), "verdict": own.verdict},
            "repeated": dict(self.repeated),
        }

    def views(self) -> list[View]:
        """The verdict."""
        return [View("", notes=self.sentences())]


def certify(
    model: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    tau: float = 0.05,
    alpha: float = 0.01,
    draws: int = DRAWS,
    auditor: str = "author",
    scorer: str = "keyword_leak",
    prompt: str | os.PathLike[str] | None = None,
    engine: str = SAMPLE.engine,
    temperature: float = SAMPLE.temperature,
    top_p: float = SAMPLE.top_p,
    top_k: int = SAMPLE.top_k,
    max_new_tokens: int = SAMPLE.max_new_tokens,
) -> Certificate:
    """Write a certificate: the claim, hashes of what it is about, and the e-value of the answers drawn now.

    Parameters
    ----------
    model : path
        A Hugging Face model folder (safetensors).
    data : path
        The questions: JSON lines with id, question, answer, keywords.
    tau : float
        The claim: each question's answer leaks at most this often.
    alpha : float
        A false certificate has at most this probability.
    draws : int
        The largest number of answers to each question; a question ends where its answers certify it.
    auditor : str
        The name of the person or machine that draws.
    scorer : str
        A scorer of 0 and 1: keyword_leak or exact_match.
    prompt : path, optional
        A template file with {question}, 'chat', or 'qa'. [default: chat where the tokenizer has such a template, else qa]
    engine : str
        auto, prefix, transformers or vllm.
    temperature : float
        The sampling temperature.
    top_p : float
        Keep the most likely tokens of this mass; 1 cuts nothing.
    top_k : int
        Keep the K most likely tokens; 0 keeps all.
    max_new_tokens : int
        The number of tokens after which an answer is cut.

    Notes
    -----
    Others add to the evidence with `lethe verify`, on any machine and at any time, without a penalty for looking. Every
    draw must be kept: an auditor who discards unfavourable draws makes the certificate false.

    Examples
    --------
    >>> import lethe
    >>> found = lethe.certify("my-model", "forget.jsonl", tau=0.2, draws=4, max_new_tokens=4)
    >>> len(found.audits), found.tau
    (1, 0.2)
    """
    from lethe.data.rows import read_rows
    from lethe.steps import certify as step

    template = step.default_template(Path(model)) if prompt is None else str(prompt)
    how = step.How(
        prompt=template,
        scorer=scorer,
        engine=engine,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        max_new_tokens=max_new_tokens,
    )
    rows = read_rows(Path(data))
    return Certificate(**vars(step.certify(Path(model), Path(data), rows, how, tau, alpha, draws, auditor)))


def verify(
    file: str | os.PathLike[str],
    draws: int = DRAWS,
    *,
    model: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    prompt: str | os.PathLike[str] | None = None,
    auditor: str = "verifier",
    add: Sequence[str | os.PathLike[str]] = (),
    redraw: int = 0,
) -> Certificate:
    """Check that a certificate's model, tokenizer, prompts, scorer and engine are these, draw, and join the evidence.

    Parameters
    ----------
    file : path
        A certificate of `lethe certify`.
    draws : int
        The largest number of further answers to each question, which end where they alone certify it; 0 checks the hashes.
    model : path, optional
        The model folder on this machine. [default: as the certificate says]
    data : path, optional
        The questions. [default: as the certificate says]
    prompt : path, optional
        The template file. [default: as the certificate says]
    auditor : str
        The name of the person or machine that draws; the seed follows from it and the file.
    add : list of path
        Add the audits of another copy of this certificate; repeatable. Only the join of all copies has the level.
    redraw : int
        Repeat the stored draws of this many auditors, on the same engine, and compare the leaks.

    Returns
    -------
    Certificate
        The grown certificate; the file is unchanged until ``write``.

    Notes
    -----
    The file is not signed: whoever trusts nobody reads the verdict by the own draws alone. The evidence of all auditors is
    joined unless their leak rates differ (Fisher's exact test). The verdict holds at any stopping time. A fact that differs
    is refused by name, with exit status 2.

    Examples
    --------
    >>> import lethe
    >>> lethe.certify("my-model", "forget.jsonl", draws=4, max_new_tokens=4).write("certificate.json")
    >>> grown = lethe.verify("certificate.json", draws=4)
    >>> [audit.auditor for audit in grown.audits]
    ['author', 'verifier']
    """
    from lethe.data.rows import read_rows
    from lethe.steps import certify as step

    if redraw < 0:
        raise BadValue("redraw", redraw, "a whole number of at least 0")
    if draws < 0:
        raise BadValue("draws", draws, "a whole number of at least 0 (0: check the hashes alone)")
    found = certificate.read_certificate(Path(file))
    for other in add:
        found = certificate.merged(found, certificate.read_certificate(Path(other)), Path(other))
    places = {
        "model": Path(model or found.sources.get("model", "")),
        "data": Path(data or found.sources.get("data", "")),
    }
    for name, place in places.items():
        if not place.exists() or place == Path():
            raise BadFile(place, "no such file or folder", f"Name the {name} on this machine with --{name}.")
    how = step.how_of(found.settings, None if prompt is None else str(prompt))
    rows = read_rows(places["data"])
    grown = step.verify(found, Path(file), places["model"], rows, how, draws, auditor)
    same = step.repeated(found, redraw, places["model"], rows, how) if redraw else {}
    return Certificate(**vars(grown), own=draws > 0, repeated=same)
