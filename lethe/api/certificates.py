"""`lethe.certify` and `lethe.verify`: a claim about a model, with evidence to which other auditors can add."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.attesting import Verification, is_attested, verified
from lethe.api.parameters import Place, documented, served_by
from lethe.api.result import TableWithSentences, View, frame
from lethe.certificates import certificate
from lethe.certificates.audits import NOT_REPEATABLE, audited, repeated_audits, spot_checked
from lethe.certificates.certificate import MOST_DRAWS, Audit, check_facts, merged, read_certificate
from lethe.certificates.drawing import RETRAIN, SeededDraws
from lethe.certificates.draws import Draws, files_beside
from lethe.certificates.hashes import PLAIN, CertificateSettings, facts, weights_of
from lethe.certificates.spot_check import REFUTED, SpotCheck
from lethe.config.measuring import SAMPLE, Endpoint
from lethe.errors import BadFile, BadInput, BadValue, check
from lethe.identity import digest
from lethe.results.quantities import SAID, Access
from lethe.statistics.checks import check_alpha, check_count, check_share

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Row

DRAWS = 200
AS_CLAIMED = -1  # the size of a check: what the claim fixes, else `CHECKED`
CHECKED = 688  # a clean check of as many of 4,096 draws leaves 37 that may be forged
COIN = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, repr=False)
class ShownCertificate(certificate.Certificate, TableWithSentences):
    """The result of `certify` and `verify`; ``write`` writes the file. ``drew``: whether this call drew the last audit;
    ``repeated``: whether the repeated draws of each auditor gave the stored leaks. ``committed``: the draws of `certify`, to
    which the root of a tree commits. ``checked``: what a spot check of an author's draws found.
    """

    drew: bool = True
    repeated: Mapping[str, bool] = field(default_factory=dict)
    committed: Draws | None = None
    checked: SpotCheck | None = None

    @property
    def homogeneous(self) -> bool:
        """Whether the auditors agree, and draws that were drawn again with what the file states of them."""
        return self._as_stated and super().homogeneous

    @property
    def _as_stated(self) -> bool:
        """Whether all draws that were drawn again, whole audits or single ones, are as stated."""
        is_refuted = self.checked is not None and self.checked.verdict == REFUTED
        return all(self.repeated.values()) and not is_refuted

    def alone(self, audit: Audit) -> ShownCertificate:
        return replace(self, audits=(audit,), checks=(), repeated={}, checked=None)

    def write(self, path: Path) -> None:
        if self.checked is not None and self.checked.verdict == REFUTED:
            auditor = self.checked.audits[-1].auditor
            problem = f"not written, since answers of {auditor}, drawn again"
            raise BadInput(f"{path}: {problem}, are not as stated.")
        for name, same in self.repeated.items():
            if not same:
                problem = (
                    f"not written, since {name}'s draws, repeated, give other leaks than stated"
                )
                raise BadInput(f"{path}: {problem}.")
        super().write(path)
        if self.committed is not None:
            self.committed.write(*files_beside(Path(path)))

    def to_frame(self) -> pd.DataFrame:
        """One row per question: its answers, the leaks among them, and the logarithm of its e-value."""
        leaks, n = self.counts()
        logs = self.log_e_values()
        return frame({"id": self.questions, "n": n, "leaks": leaks, "log_e_value": logs})

    @property
    def access(self) -> Access:
        """What drawing and checking take: the folder of the model, or a server's answers alone."""
        return "answers" if "endpoint" in self.settings.get("engine", {}) else "weights"

    def sentences(self) -> list[str]:
        lines = [self.statement(), f"Access to the model: {SAID[self.access]}."]
        if self.drew:
            lines.append(f"Your own draws alone: {self.alone(self.audits[-1]).sentence()}")
        if not self._as_stated:
            lines.append(
                "All auditors: Not joined: some draws are not as stated. Trust your own draws alone."
            )
        elif len(self.audits) > 1 or not self.drew:
            lines.append(f"All auditors: {self.sentence()}")
        for name, same in self.repeated.items():
            leaks = "the same leaks" if same else "other leaks than the file states"
            lines.append(f"The draws of {name}, repeated: {leaks}.")
        if self.checked is not None:
            lines += self.checked.sentences()
        elif self.checks:
            of_file = SpotCheck(self, self.checks).sentences()
            lines += ["The file states checks, which are as good as those who made them:", *of_file]
        return lines

    def as_json(self) -> dict[str, object]:
        alone = None
        if self.drew:
            last = self.alone(self.audits[-1])
            alone = {
                "auditor": last.audits[0].auditor,
                "log_e_value": last.log_e(),
                "verdict": last.verdict,
            }
        value = {**self.as_dict(), "own": alone, "repeated": dict(self.repeated)}
        value["access"] = self.access
        if self.checked is not None:
            value["check"] = self.checked.as_json()
        return value

    def views(self) -> list[View]:
        return [View("", notes=self.sentences())]


@documented
def certify(
    model: Place,
    data: Place,
    *,
    tau: float = 0.05,
    alpha: float = 0.01,
    draws: int = DRAWS,
    auditor: str = "author",
    scorer: str = "keyword_leak",
    prompt: Place | None = None,
    engine: str = SAMPLE.engine,
    temperature: float = SAMPLE.temperature,
    top_p: float = SAMPLE.top_p,
    top_k: int = SAMPLE.top_k,
    max_new_tokens: int = SAMPLE.max_new_tokens,
    dtype: str = SAMPLE.dtype,
    endpoint: str | None = None,
    key_env: str | None = None,
    retrain: Place | None = None,
    coin: str | None = None,
    check: int = 0,
) -> ShownCertificate:
    """Write a certificate: the claim, the hashes of its model and questions, and the e-value of new answers.

    Parameters
    ----------
    model : A Hugging Face model folder (safetensors). With --endpoint, the server's name of the model.
    data : The questions: JSON lines with id, question, answer, keywords.
    tau : The claim: each question's answer leaks at most this often.
    alpha : A false certificate has at most this probability.
    draws : The largest number of answers to each question; a question ends where its answers certify it.
    scorer : A scorer of 0 and 1: keyword_leak or exact_match.
    prompt : A template file with {question}, 'chat', or 'qa'. [default: chat where the tokenizer has such a template, else
        qa]
    endpoint : The address of an OpenAI-compatible server, which the certificate names; it must pass its probes. Lethe
        hashes no weights behind the name: the claim is about the answers as served.
    key_env : The environment variable that holds the server's key.
    retrain : The folder of a model trained without the questions: the claim is then that each question leaks at most tau
        more often than that model.
    coin : 64 hexadecimal digits of a verifier or a public beacon, which enter the seed, so that you choose none.
    check : Fix in the claim that each question gets exactly ``draws`` answers, and that a verifier draws this many of them
        again. `lethe plan --check` says what that is worth.

    Notes
    -----
    Others add to the evidence with `lethe verify`, on any machine and at any time, without a penalty for looking. Every
    draw must be kept: an auditor who discards unfavourable draws makes the certificate false.

    Examples
    --------
    >>> import lethe
    >>> certificate = lethe.certify("my-model", "forget.jsonl", tau=0.2, draws=4, max_new_tokens=4)
    >>> len(certificate.audits), certificate.tau
    (1, 0.2)
    """
    from lethe.data.rows import read_rows
    from lethe.models.checkpoints import check_unchanged, content, default_prompt

    source = _source(model, endpoint, key_env)
    if endpoint:
        _check_served(engine, dtype, retrain)
    _check(auditor, draws)
    _check_fixed(check, draws, coin, retrain)
    if prompt is None:
        prompt = "chat" if default_prompt(source) == "chat" else PLAIN
    served = str(model) if endpoint else None
    how = CertificateSettings(
        prompt=str(prompt),
        scorer=scorer,
        engine=engine,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        max_new_tokens=max_new_tokens,
        dtype=dtype,
        endpoint=endpoint,
        served=served,
    )
    rows = read_rows(Path(data))
    check_alpha(alpha)
    check_share("tau", tau)
    hashes = facts(source, rows, how)
    before = content(source)
    _check_judged(rows, scorer)
    drawing = SeededDraws(source, rows, how)
    if not endpoint:
        how = _as_drawn(how, drawing, Path(model))
    sources = {"model": str(model), "data": str(data)}
    if retrain is not None:
        sources["retrain"] = str(retrain)
    claim = certificate.Certificate(
        questions=tuple(row["id"] for row in rows),
        tau=tau,
        alpha=alpha,
        hashes={**hashes, "engine": digest(how.drawing())},
        settings={"prompt": how.prompt, "scorer": scorer, "engine": how.drawing()},
        sources=sources,
        coin=coin,
        n=draws if check else None,
        check=check or None,
        retrain=None if retrain is None else weights_of(Path(retrain)),
    )
    if check and not drawing.repeatable:
        raise BadInput(NOT_REPEATABLE.format(option="--check", engine=drawing.engine.name))
    drawing.keep = drawing.repeatable
    beside = None
    if retrain is not None:
        beside = SeededDraws(Path(retrain), rows, how, RETRAIN)
    grown = audited(claim, drawing, draws, auditor, beside)
    check_unchanged(source, before)
    committed = None
    if drawing.repeatable:
        (audit,) = grown.audits
        committed = replace(drawing.committed(audit.seed), audit=audit.key)
    return ShownCertificate(**vars(grown), committed=committed)


@documented
def verify(
    file: Place,
    draws: int = DRAWS,
    *,
    model: Place | None = None,
    data: Place | None = None,
    prompt: Place | None = None,
    key_env: str | None = None,
    auditor: str = "verifier",
    add: Sequence[str | os.PathLike[str]] = (),
    redraw: int = 0,
    check: int = 0,
    key: Place | None = None,
    retrain: Place | None = None,
) -> ShownCertificate | Verification:
    """Check that a certificate is about this model, draw further answers, and join the evidence; or check a statement.

    Parameters
    ----------
    file : A certificate of `lethe certify`, or a statement or envelope of `lethe attest`, of which nothing is drawn. In
        Python the file is unchanged until ``write``.
    draws : The largest number of further answers to each question, which end where they alone certify it; 0 checks the
        hashes.
    model : The model folder on this machine. [default: as the certificate says]
    data : The questions. [default: as the certificate says]
    prompt : The template file. [default: as the certificate says]
    key_env : The environment variable that holds the key of a certificate's server.
    auditor : The name of the person or machine that draws; the seed follows from it and the file.
    add : Add the audits of another copy of this certificate; repeatable. Only the join of all copies has the level.
    redraw : Repeat the stored draws of this many auditors, on the same engine, and compare the leaks.
    check : Draw this many of the author's answers to each question again, chosen by a fresh coin, and compare them with the
        files of draws beside the certificate. The result holds even against an author who forges answers. -1, or --check
        without a number, is the size that the claim fixes, else 688, or all where there are fewer.
    key : The public key (OpenSSH or PEM) of an envelope's author.
    retrain : The folder of Retrain on this machine, of a certificate beside it. [default: as the certificate says]

    Notes
    -----
    A certificate is not signed: if you trust nobody, read the verdict by your own draws alone. The evidence of all auditors
    is joined unless their leak rates differ. The verdict holds at any stopping time. If the model or another fact differs, an
    error names the fact (exit status 2).

    Examples
    --------
    >>> import lethe
    >>> lethe.certify("my-model", "forget.jsonl", draws=4, max_new_tokens=4).write("certificate.json")
    >>> grown = lethe.verify("certificate.json", draws=4)
    >>> [audit.auditor for audit in grown.audits]
    ['author', 'verifier']
    """
    from lethe.data.rows import read_rows

    if is_attested(Path(file)):
        unasked = {"redraw": redraw, "check": check, "add": add, "prompt": prompt}
        _check_unasked(**unasked, key_env=key_env, retrain=retrain)
        return verified(Path(file), key, model, data)
    _check_asked(draws, redraw, check, key)
    _check(auditor, max(draws, 1))
    claim = read_certificate(Path(file))
    for other in add:
        claim = merged(claim, read_certificate(Path(other)), Path(other))
    if check == AS_CLAIMED:
        check = claim.check or CHECKED
    how = _stated(claim, prompt)
    _check_repeats(claim, how, redraw, check)
    if claim.retrain is None:
        _check_no_retrain(retrain)
    of_model = Path(model or claim.sources.get("model", ""))
    of_data = Path(data or claim.sources.get("data", ""))
    if not how.endpoint:
        _check_exists(of_model, "model")
    _check_exists(of_data, "data")
    if how.dtype == "auto":
        legal = "the number format in which the certificate's model draws"
        raise BadValue("dtype", "auto", legal)
    rows = read_rows(of_data)
    source = _source(how.served or of_model, how.endpoint, key_env)
    check_facts(claim, facts(source, rows, how), Path(file))
    of_retrain = None
    if claim.retrain is not None:
        of_retrain = Path(retrain or claim.sources.get(RETRAIN, ""))
        _check_retrain(of_retrain, claim.retrain)
    if not (draws or redraw or check):
        return ShownCertificate(**vars(claim), drew=False)
    drawing = SeededDraws(source, rows, how)
    beside = None if of_retrain is None else SeededDraws(of_retrain, rows, how, RETRAIN)
    checked = None
    grown = claim
    if check:
        found = spot_checked(claim, drawing, Path(file), check, auditor)
        checked = SpotCheck(claim, (found,), before=len(claim.checks))
        grown = replace(claim, checks=(*claim.checks, found))
    if draws:
        grown = audited(grown, drawing, draws, auditor, beside)
    repeated = repeated_audits(claim.audits, redraw, drawing)
    return ShownCertificate(**vars(grown), drew=draws > 0, repeated=repeated, checked=checked)


def _check_served(engine: str, dtype: str, retrain: Place | None) -> None:
    """Refuse what a server decides, and a second model, which the address does not name."""
    server_draws = "auto for a served model: the server draws"
    check(engine == "auto", "engine", engine, server_draws)
    check(dtype == "auto", "dtype", dtype, server_draws)
    check(retrain is None, "retrain", retrain, "left out for a served model")


def _check_fixed(size: int, draws: int, coin: str | None, retrain: Place | None) -> None:
    check(0 <= size <= draws, "check", size, f"a whole number from 0 to draws ({draws})")
    is_coin = coin is None or COIN.fullmatch(coin) is not None
    check(is_coin, "coin", coin, "64 hexadecimal digits, in lower case")
    if size and retrain is not None:
        legal = "left out with retrain: a check repeats no draws of Retrain"
        raise BadValue("check", size, legal)


def _check_judged(rows: Sequence[Row], scorer: str) -> None:
    """Refuse questions whose answers the scorer cannot judge."""
    from lethe.scoring.scorer import applies

    unread = [row["id"] for row in rows if not applies(scorer, row)]
    if not unread:
        return
    which = f"question {unread[0]!r} ({len(unread)} of {len(rows)} such questions)"
    why = "every answer would count as a leak, so no certificate is possible"
    remedy = "Add keywords, leave these questions out, or use another scorer."
    raise BadInput(f"{scorer} can judge no answer to {which}: {why}. {remedy}")


def _as_drawn(how: CertificateSettings, drawing: SeededDraws, model: Path) -> CertificateSettings:
    """The settings with the engine and the number format that draw, whatever "auto" takes elsewhere."""
    from lethe.models.model import Model

    opened = getattr(drawing.engine, "checkpoint", None)
    if opened is None:
        opened = Model.of(model, dtype=how.dtype)
    return how.model_copy(update={"engine": drawing.engine.name, "dtype": opened.dtype})


def _check_repeats(
    claim: certificate.Certificate, how: CertificateSettings, redraw: int, size: int
) -> None:
    """Refuse repeats that a certificate does not allow."""
    if redraw and how.endpoint:
        raise BadInput("--redraw: a server draws other answers each time; leave it out.")
    if redraw and claim.retrain is not None:
        raise BadInput("--redraw: Retrain's draws are not repeated; draw your own with --draws.")
    if size and claim.retrain is not None:
        raise BadInput("--check: Retrain's draws are not repeated; draw your own with --draws.")
    if size and claim.check is not None:
        legal = f"{claim.check}, which the claim fixes"
        check(size == claim.check, "check", size, legal)


def _check_no_retrain(retrain: Place | None) -> None:
    check(retrain is None, "retrain", retrain, "left out: the certificate names no Retrain")


def _check_retrain(place: Path, weights: str) -> None:
    """Refuse another Retrain than the certificate's."""
    _check_exists(place, "retrain")
    if weights_of(place) != weights:
        remedy = "Name the certificate's Retrain with --retrain."
        raise BadFile(place, "does not have the weights of the certificate's Retrain", remedy)


def _check_unasked(**options: object) -> None:
    """Refuse options of a certificate beside a statement, which would look checked."""
    for name, value in options.items():
        check(not value, name, value, "left out: nothing is drawn of a statement")


def _check_asked(draws: int, redraw: int, size: int, key: Place | None) -> None:
    check(key is None, "key", key, "left out: a certificate has no signature")
    for name, value in (("redraw", redraw), ("draws", draws)):
        check(value >= 0, name, value, "a whole number of at least 0")
    check(size >= AS_CLAIMED, "check", size, f"a whole number of at least {AS_CLAIMED}")


def _stated(claim: certificate.Certificate, prompt: Place | None) -> CertificateSettings:
    """How a certificate says that answers are drawn and scored, with another place of its ``prompt`` if one is given."""
    settings = claim.settings
    try:
        return CertificateSettings(
            prompt=str(prompt or settings["prompt"]),
            scorer=settings["scorer"],
            **settings["engine"],
        )
    except (KeyError, TypeError) as error:
        raise BadInput(f"The certificate's settings are broken ({error}).") from None


def _check_exists(place: Path, name: str) -> None:
    if not place.exists() or place == Path():
        remedy = f"Name the {name} on this machine with --{name}."
        raise BadFile(place, "no such file or folder", remedy)


def _check(auditor: str, draws: int) -> None:
    check_count("draws", draws)
    check(draws <= MOST_DRAWS, "draws", draws, f"at most {MOST_DRAWS:,}: others may add to them")
    check(auditor.strip(), "auditor", auditor, "a name that is not blank")


def _source(model: Place, endpoint: str | None, key_env: str | None) -> Path | Endpoint:
    served: dict[str, object] = {}
    if endpoint is not None:
        served["endpoint"] = endpoint
    if key_env is not None:
        served["key_env"] = key_env
    return served_by(served, str(model)) if served else Path(model)
