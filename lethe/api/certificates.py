"""`lethe.certify` and `lethe.verify`: a claim about a model, with evidence to which other auditors can add."""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.api.attesting import Verification, is_attested, verified
from lethe.api.parameters import Place, documented, served_by
from lethe.api.result import TableWithSentences, View, frame
from lethe.certificates import certificate
from lethe.certificates.certificate import (
    MOST_DRAWS,
    Audit,
    Check,
    check_facts,
    merged,
    read_certificate,
)
from lethe.certificates.draws import Draws, files_beside, of_leaves, read_draws, read_leaves
from lethe.certificates.merkle import Leaf
from lethe.certificates.spot_check import (
    REFUTED,
    SpotCheck,
    chosen,
    fresh_coin,
    mismatches_in,
    size_of,
)
from lethe.config.fields import Count, Direct
from lethe.config.measuring import SAMPLE, Drawing, Endpoint, scorer_params
from lethe.errors import BadFile, BadInput, BadValue, check
from lethe.identity import cache_key, digest, module_of
from lethe.instruction_set import kernels_in_use
from lethe.io.files import Json, read_text
from lethe.progress import progress
from lethe.registry import SCORERS
from lethe.results.licence import of_drawing, refusals
from lethe.results.quantities import SAID, Access
from lethe.statistics.anytime import Counts
from lethe.statistics.checks import check_alpha, check_count, check_share

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Row
    from lethe.sampling.engine import Engine, Prompt, Settings

DRAWS = 200
AS_CLAIMED = -1  # the size of a check: what the claim fixes, else `CHECKED`
CHECKED = 688  # a clean check of as many of 4,096 draws leaves 37 that may be forged
BATCH = 64  # answers to a question between two looks at its e-value
ASKED = ("question", "context")  # the keys of a row that make its prompt
PLAIN = "qa"  # the package's own template, whose place is another on every machine
TIME = "%Y-%m-%dT%H:%M:%SZ"
COIN = re.compile("[0-9a-f]{64}")
NOT_REPEATABLE = "{option}: the engine {engine} draws no single answer again; prefix on a CPU does for most models."
RETRAIN = "retrain"  # the stream of Retrain's answers, independent of the model's
Done = Callable[[int, int, int], bool]


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
    drawing = _Drawing(source, rows, how)
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
        beside = _Drawing(Path(retrain), rows, how, RETRAIN)
    grown = _with_audit(claim, drawing, draws, auditor, beside)
    check_unchanged(source, before)
    committed = None
    if drawing.repeatable:
        (audit,) = grown.audits
        committed = replace(drawing.committed(audit.seed), audit=audit.key)
    return ShownCertificate(**vars(grown), committed=committed)


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


def _as_drawn(how: CertificateSettings, drawing: _Drawing, model: Path) -> CertificateSettings:
    """The settings with the engine and the number format that draw, whatever "auto" takes elsewhere."""
    from lethe.models.model import Model

    opened = getattr(drawing.engine, "checkpoint", None)
    if opened is None:
        opened = Model.of(model, dtype=how.dtype)
    return how.model_copy(update={"engine": drawing.engine.name, "dtype": opened.dtype})


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
    drawing = _Drawing(source, rows, how)
    beside = None if of_retrain is None else _Drawing(of_retrain, rows, how, RETRAIN)
    checked = None
    grown = claim
    if check:
        found = _spot_checked(claim, drawing, Path(file), check, auditor)
        checked = SpotCheck(claim, (found,), before=len(claim.checks))
        grown = replace(claim, checks=(*claim.checks, found))
    if draws:
        grown = _with_audit(grown, drawing, draws, auditor, beside)
    repeated = _repeated(claim.audits, redraw, drawing)
    return ShownCertificate(**vars(grown), drew=draws > 0, repeated=repeated, checked=checked)


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


class CertificateSettings(Direct, Drawing):
    """How answers are drawn and scored; ``prompt`` is a template file, "chat", or "qa", a plain question and answer."""

    prompt: str
    scorer: str = "keyword_leak"
    engine: str = SAMPLE.engine
    dtype: str = "float32"  # of a certificate that names none
    endpoint: str | None = None
    served: str | None = None  # the server's name of the model
    batch: Count = SAMPLE.batch  # answers that share a stream

    def drawing(self) -> dict[str, object]:
        """What a certificate states of the engine and its answers."""
        names = ["engine", *Drawing.model_fields, "batch"]
        if self.endpoint:
            names += ["endpoint", "served"]
        elif self.dtype != "float32":
            names.append("dtype")
        return {name: getattr(self, name) for name in names}


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


def facts(model: Path | Endpoint, rows: Sequence[Row], how: CertificateSettings) -> dict[str, str]:
    """The hash of each fact that a certificate is about; an adapter's cover its base model, a served model's its address."""
    from lethe.models.checkpoints import content
    from lethe.scoring.typography import RULE

    binary = [name for name in SCORERS if getattr(SCORERS[name], "BINARY", False)]
    if how.scorer not in binary:
        raise BadValue("scorer", how.scorer, f"a scorer of 0 and 1: {', '.join(binary)}")
    if isinstance(model, Path):
        _check_folder(model)
    if not rows:
        raise BadInput("The rows hold no question.")
    references, asked = [], []
    for row in rows:
        references.append({key: value for key, value in row.items() if key not in ASKED})
        asked.append({key: row.get(key) for key in ("id", *ASKED)})
    # The hash of the tokenizer covers its chat template.
    template = "chat" if how.prompt == "chat" else read_text(_place(how.prompt))
    settings = {"name": how.scorer, "params": scorer_params(how.scorer), "text": RULE}
    return {
        "weights": content(model, "weights"),
        "tokenizer": content(model, "tokenizer"),
        "prompts": digest(asked, template),
        "scorer": cache_key(
            module_of(SCORERS[how.scorer]), settings=settings, references=digest(references)
        ),
        "engine": digest(how.drawing()),
    }


def weights_of(retrain: Path) -> str:
    """The digest of Retrain's weights and tokenizer."""
    from lethe.models.checkpoints import content

    _check_folder(retrain)
    return digest(content(retrain, "weights"), content(retrain, "tokenizer"))


def _check_folder(model: Path) -> None:
    if not model.is_dir() or not list(model.glob("*.safetensors")):
        problem = "is no model folder with safetensors"
        raise BadFile(model, problem, "Name a Hugging Face model folder.")


def _place(prompt: str) -> str:
    from lethe.models.checkpoints import QA_PROMPT

    return str(QA_PROMPT) if prompt == PLAIN else prompt


def _with_audit(
    claim: certificate.Certificate,
    drawing: _Drawing,
    draws: int,
    auditor: str,
    beside: _Drawing | None,
) -> certificate.Certificate:
    """Draw up to ``draws`` answers to each question, until the auditor's own e-value of the question certifies.

    Where the claim fixes the author's draws, each question gets all. Retrain is drawn where the model's answers alone do not
    certify.
    """
    seed, after = claim.next_seed(auditor)
    is_fixed = claim.n is not None and not claim.audits

    def alone(place: int, leaks: int, n: int) -> bool:
        return not is_fixed and claim.reached(claim.log_e_of(Counts(leaks, n), Counts(0, 0)))

    counts, leaks = drawing.leaks(seed, (draws,) * len(drawing.rows), alone)
    drawing.check_drawn()
    of_retrain: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if beside is not None:

        def together(place: int, more: int, n: int) -> bool:
            model = Counts(leaks[place], counts[place])
            return claim.reached(claim.log_e_of(model, Counts(more, n)))

        most = []
        for place in range(len(counts)):
            most.append(0 if alone(place, leaks[place], counts[place]) else draws)
        of_retrain = beside.leaks(seed, most, together)
    root = None
    if drawing.keep:
        root = drawing.committed(seed).root
    now = time.strftime(TIME, time.gmtime())
    audit = Audit(
        auditor=auditor,
        draws=counts,
        seed=seed,
        engine=drawing.engine.name,
        time=now,
        leaks=leaks,
        after=after,
        root=root,
        kernels=drawing.kernels if root else None,
        retrain_draws=of_retrain[0],
        retrain_leaks=of_retrain[1],
    )
    return claim.with_audits([audit])


def _spot_checked(
    claim: certificate.Certificate, drawing: _Drawing, file: Path, size: int, verifier: str
) -> Check:
    """Draw ``size`` answers to each question again, of the audit whose draws lie beside the certificate."""
    draws_file, leaves_file = files_beside(file)
    draws = read_draws(draws_file)
    hashes = read_leaves(draws, leaves_file)
    audit = _audit_of(claim, draws, draws_file)
    if not drawing.repeatable:
        raise BadInput(NOT_REPEATABLE.format(option="--check", engine=drawing.engine.name))

    coin = fresh_coin()
    sizes = size_of(audit.draws, size)
    numbers_of = {}
    for question, s in zip(draws.questions, sizes, strict=True):
        numbers_of[question.id] = chosen(draws.root, coin, question.id, question.n, s)
    mismatches = mismatches_in(draws, hashes, drawing.again(audit.seed, numbers_of))
    now = time.strftime(TIME, time.gmtime())
    return Check(verifier, audit.key, coin.hex(), sizes, mismatches, now, drawing.kernels)


def _audit_of(claim: certificate.Certificate, draws: Draws, file: Path) -> Audit:
    """The audit whose draws a file has, with the same counts."""
    for audit in claim.audits:
        if audit.key != draws.audit:
            continue
        ids = tuple(question.id for question in draws.questions)
        counts = tuple(question.n for question in draws.questions)
        leaks = tuple(len(question.leaks_at) for question in draws.questions)
        stated = (claim.questions, audit.draws, audit.leaks, audit.root)
        if (ids, counts, leaks, draws.root) == stated:
            return audit
    raise BadFile(file, "does not have the draws of an audit of this certificate")


def _repeated(audits: Sequence[Audit], count: int, drawing: _Drawing) -> dict[str, bool]:
    """Repeat the draws of ``count`` audits, those with the most draws first: whether each gives the stored leaks."""
    most_drawn = sorted(audits, key=lambda audit: -sum(audit.draws))[:count]
    for audit in most_drawn:
        if audit.engine != drawing.engine.name:
            both = f"{audit.auditor} drew with {audit.engine}, and this machine draws with {drawing.engine.name}"
            remedy = "Repeat these draws where that engine runs."
            raise BadInput(f"--redraw: {both}, which gives other answers from one seed. {remedy}")
    same_of_auditor = {}
    for audit in most_drawn:
        _, leaks = drawing.leaks(audit.seed, audit.draws)
        same_of_auditor[audit.auditor] = leaks == audit.leaks
    return same_of_auditor


def counted(
    leaks_in: Callable[[list[int], int, int], list[int]],
    draws: Sequence[int],
    done: Done,
    watched: Callable[[Iterator[int]], Iterable[int]] = iter,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The answers and the leaks among them, by question, in rounds of `BATCH`; each ends at its draws, or where ``done`` at
    its place, leaks and answers.

    ``leaks_in`` counts the leaks of the questions at some places, in so many answers from a first one; ``watched`` shows the
    rounds.
    """
    counts = [0] * len(draws)
    leaks = [0] * len(draws)
    open_places = [place for place, most in enumerate(draws) if most]

    def rounds() -> Iterator[int]:
        while open_places:
            yield counts[open_places[0]]  # all that are open have equally many answers

    for start in watched(rounds()):
        places_of_size: dict[int, list[int]] = {}
        for place in open_places:
            size = min(BATCH, draws[place] - start)
            places_of_size.setdefault(size, []).append(place)
        for size, places in sorted(places_of_size.items()):
            for place, more in zip(places, leaks_in(places, start, size), strict=True):
                counts[place] = start + size
                leaks[place] += more
        still_open = []
        for place in open_places:
            is_done = done(place, leaks[place], counts[place])
            if counts[place] < draws[place] and not is_done:
                still_open.append(place)
        open_places[:] = still_open
    return tuple(counts), tuple(leaks)


class _Drawing:
    """Answers of a model from seeds, in batches of `BATCH` answers to each question; ``role`` names its stream."""

    engine: Engine

    def __init__(
        self, model: Path | Endpoint, rows: Sequence[Row], how: CertificateSettings, role: str = ""
    ) -> None:
        from lethe.models.checkpoints import prepare_torch
        from lethe.sampling.engine import Options, open_engine
        from lethe.sampling.tasks import speaker
        from lethe.scoring.scorer import open_scorer

        speak = speaker(model, _place(how.prompt))
        self.rows, self.how = rows, how
        self.role = role
        self.prompts = [speak(row["id"], row) for row in rows]
        self.scorer = open_scorer(how.scorer)
        self.keep = False
        self.leaves: dict[str, list[Leaf]] = {}
        if not isinstance(model, Endpoint):
            prepare_torch()
            self.engine = open_engine(how.engine, model, Options(dtype=how.dtype))
            return
        from lethe.sampling.endpoint import EndpointEngine

        # It holds the answers, which counts replace.
        self.folder = tempfile.TemporaryDirectory(prefix="lethe-")
        self.engine = engine = EndpointEngine(model, Path(self.folder.name), how.prompt == "chat")
        engine.law = how.model_dump(
            include={"temperature", "top_p", "top_k"}
        )  # its cuts are probed
        self._refuse({"probes": list(map(asdict, engine.probes.tried))})

    def check_drawn(self) -> None:
        """Refuse the draws of a server that changed while it drew, or that drew the last answers otherwise than the first."""
        from lethe.sampling.endpoint import EndpointEngine

        if isinstance(self.engine, EndpointEngine):
            self._refuse(self.engine.served())

    def _refuse(self, served: Mapping[str, Json]) -> None:
        """Refuse the answers of a server of which nothing may be claimed (`lethe.results.licence`)."""
        reasons = refusals(of_drawing({"served": served}, ()))
        if not reasons:
            return
        failed = []
        for probe in served["probes"]:
            if probe["needed"] and probe["passed"] is False:
                failed.append(f"{probe['name']}: {probe['sentence']}")
        raise BadInput(f"No certificate: {' '.join(reasons)} ({'; '.join(failed)}.)")

    def leaks(
        self,
        seed: int,
        draws: Sequence[int],
        done: Done = lambda place, leaks, n: False,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """`counted` for the answers of a seed."""
        from lethe.sampling.forecast import announce

        most = max(draws)
        if not most:
            return tuple(draws), tuple(draws)
        announce(self.engine, self.prompts, self._settings(most, seed))
        leaks_in = partial(self._leaks, seed)
        if self.how.endpoint:  # a server's engine shows its own progress
            return counted(leaks_in, draws, done)
        unit = f"rounds of {BATCH} answers"
        watched = partial(progress, label="draw", unit=unit, total=math.ceil(most / BATCH))
        return counted(leaks_in, draws, done, watched)

    def _settings(self, n: int, seed: int, first: int = 0) -> Settings:
        from lethe.sampling.engine import Settings

        how = self.how
        return Settings(
            temperature=how.temperature,
            top_p=how.top_p,
            top_k=how.top_k,
            max_new_tokens=how.max_new_tokens,
            n=n,
            greedy=False,
            seed=seed,
            first_sample=first,
            batch=how.batch,
            stream_of=self.role,
        )

    def _leaks(
        self,
        seed: int,
        places: Sequence[int],
        first: int,
        size: int,
    ) -> list[int]:
        asked = [self.prompts[place] for place in places]
        leaves_of = self._leaves(asked, self._settings(size, seed, first))
        leaks = []
        for place in places:
            question = self.rows[place]["id"]
            leaks.append(sum(leaf.score for leaf in leaves_of[question]))
            if self.keep:
                self.leaves.setdefault(question, []).extend(leaves_of[question])
        return leaks

    def again(
        self, seed: int, numbers_of: Mapping[str, Sequence[int]]
    ) -> Mapping[str, Sequence[Leaf]]:
        """Single answers of a seed, by question: those with these numbers."""
        asked = []
        for prompt in self.prompts:
            asked.append(replace(prompt, only=tuple(numbers_of[prompt.prompt_id])))
        return self._leaves(asked, self._settings(1, seed))

    def _leaves(self, asked: Sequence[Prompt], settings: Settings) -> dict[str, list[Leaf]]:
        """The answers to prompts with their scores. An answer that the scorer cannot judge counts against the claim: as a
        leak of the model, and as none of Retrain.
        """
        from lethe.scoring.verdicts import AnsweredRow

        row_of = {row["id"]: row for row in self.rows}
        drawn = list(self.engine.answer(asked, settings))
        questions = []
        for answers in drawn:
            questions.append(AnsweredRow(list(answers.texts), row_of[answers.prompt_id]))
        leaves_of: dict[str, list[Leaf]] = {}
        unjudged = 0.0 if self.role == RETRAIN else 1.0
        for answers, scores in zip(drawn, self.scorer.score(questions), strict=True):
            leaves = leaves_of[answers.prompt_id] = []
            for place, score in enumerate(np.nan_to_num(scores, nan=unjudged)):
                leaf = Leaf(
                    question=answers.prompt_id,
                    sample=answers.samples[place],
                    text=answers.texts[place],
                    tokens=answers.tokens[place],
                    finish_reason=answers.finish_reasons[place],
                    score=int(score),
                )
                leaves.append(leaf)
        return leaves_of

    @property
    def repeatable(self) -> bool:
        """Whether a single answer can be drawn again, bit for bit; an engine of another package need not say so."""
        return getattr(self.engine, "repeatable", False)

    @property
    def kernels(self) -> str:
        """What computes the answers: other kernels or libraries round other last bits, and draw a few other answers."""
        libraries = [f"{name} {version(name)}" for name in ("torch", "transformers")]
        return ", ".join([kernels_in_use(), *libraries])

    def committed(self, seed: int) -> Draws:
        """All kept draws of a seed, in the order of the questions."""
        leaves_of = {row["id"]: self.leaves[row["id"]] for row in self.rows}
        return replace(of_leaves(leaves_of, seed), kernels=self.kernels)
