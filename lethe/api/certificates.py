"""`lethe.certify` and `lethe.verify`: a claim about a model, with evidence to which other auditors can add."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.api.parameters import Place, documented, served_by
from lethe.api.result import TableWithSentences, View, frame
from lethe.certificates import certificate
from lethe.certificates.certificate import Audit, check_facts, merged, read_certificate
from lethe.config.evaluating import SAMPLE, Drawing, Endpoint, scorer_params
from lethe.config.fields import Direct
from lethe.errors import BadFile, BadInput, BadValue, check
from lethe.identity import cache_key, digest, module_of
from lethe.io.files import Json, read_text
from lethe.progress import progress
from lethe.registry import SCORERS
from lethe.results.licence import of_drawing, refusals
from lethe.statistics.checks import check_alpha, check_count, check_share
from lethe.statistics.sequential import log_e_value

if TYPE_CHECKING:
    import pandas as pd

    from lethe.io.artifacts import Row
    from lethe.sampling.engine import Engine, Settings

DRAWS = 200
BATCH = 64  # answers to a question between two looks at its e-value
PLAIN = "qa"  # the package's own template, whose place is another on every machine


@dataclass(frozen=True, repr=False)
class Certificate(certificate.Certificate, TableWithSentences):
    """The result of `certify` and `verify`; ``write`` writes the file. ``own``: whether this call drew the last audit;
    ``repeated``: whether the repeated draws of each auditor gave the stored leaks.
    """

    own: bool = True
    repeated: Mapping[str, bool] = field(default_factory=dict)

    @property
    def homogeneous(self) -> bool:
        """Whether the auditors agree, and repeated draws with what the file states of them."""
        return all(self.repeated.values()) and super().homogeneous

    def alone(self, audit: Audit) -> Certificate:
        return replace(self, audits=(audit,), repeated={})

    def write(self, path: Path) -> None:
        if wrong := [name for name, same in self.repeated.items() if not same]:
            raise BadInput(
                f"{path}: not written, since {wrong[0]}'s draws, repeated, give other leaks than stated."
            )
        super().write(path)

    def to_frame(self) -> pd.DataFrame:
        """One row per question: its answers, the leaks among them, and the logarithm of its e-value."""
        leaks, n = self.counts()
        return frame(
            {"id": self.questions, "n": n, "leaks": leaks, "log_e_value": self.log_e_values()}
        )

    def sentences(self) -> list[str]:
        lines = [self.statement()]
        if self.own:
            lines.append(f"Your own draws alone: {self.alone(self.audits[-1]).sentence()}")
        if not all(self.repeated.values()):
            lines.append(
                "All auditors: Not joined: some draws are not as stated. Trust your own draws alone."
            )
        elif len(self.audits) > 1 or not self.own:
            lines.append(f"All auditors: {self.sentence()}")
        same = {True: "the same leaks", False: "other leaks than the file states"}
        return lines + [
            f"The draws of {name}, repeated: {same[own]}." for name, own in self.repeated.items()
        ]

    def as_json(self) -> dict[str, object]:
        own = self.alone(self.audits[-1]) if self.own else None
        alone = own and {
            "auditor": own.audits[0].auditor,
            "log_e_value": own.log_e(),
            "verdict": own.verdict,
        }
        return self.as_dict() | {"own": alone, "repeated": dict(self.repeated)}

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
) -> Certificate:
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
    given = dict(locals())
    from lethe.data.rows import read_rows
    from lethe.models.checkpoints import default_prompt
    from lethe.sampling.engine import Options, checkpoint
    from lethe.scoring import applies

    source = _source(model, endpoint, key_env)
    for name, value in (("engine", engine), ("dtype", dtype)):
        check(
            not endpoint or value == "auto",
            name,
            value,
            "auto for a served model: the server draws",
        )
    chat = prompt is None and default_prompt(source) == "chat"
    given["served"] = str(model) if endpoint else None
    given["prompt"] = ("chat" if chat else PLAIN) if prompt is None else str(prompt)
    how = How(**{name: given[name] for name in How.model_fields})
    rows = read_rows(Path(data))
    _check(auditor, draws)
    check_alpha(alpha)
    check_share("tau", tau)
    hashes = facts(source, rows, how)
    if unread := [row["id"] for row in rows if not applies(scorer, row)]:
        which = f"question {unread[0]!r} ({len(unread)} of {len(rows)} such questions)"
        remedy = "Add keywords, leave these questions out, or use another scorer."
        every = "every answer would count as a leak, so no certificate is possible"
        raise BadInput(f"{scorer} can judge no answer to {which}: {every}. {remedy}")
    drawing = _Drawing(source, rows, how)
    if (
        not endpoint
    ):  # the statement is about the engine that draws, whatever "auto" takes elsewhere
        opened = getattr(drawing.engine, "checkpoint", None) or checkpoint(
            Path(model), Options(dtype=dtype)
        )
        how = how.model_copy(update={"engine": drawing.engine.name, "dtype": opened.dtype})
    claim = certificate.Certificate(
        questions=tuple(row["id"] for row in rows),
        tau=tau,
        alpha=alpha,
        hashes=hashes | {"engine": digest(how.drawing())},
        settings={"prompt": how.prompt, "scorer": scorer, "engine": how.drawing()},
        sources={"model": str(model), "data": str(data)},
    )
    return Certificate(**vars(_with_audit(claim, drawing, draws, auditor)))


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
) -> Certificate:
    """Check that a certificate is about this model, draw further answers, and join the evidence.

    Parameters
    ----------
    file : A certificate of `lethe certify`. In Python the file is unchanged until ``write``.
    draws : The largest number of further answers to each question, which end where they alone certify it; 0 checks the
        hashes.
    model : The model folder on this machine. [default: as the certificate says]
    data : The questions. [default: as the certificate says]
    prompt : The template file. [default: as the certificate says]
    key_env : The environment variable that holds the key of a certificate's server.
    auditor : The name of the person or machine that draws; the seed follows from it and the file.
    add : Add the audits of another copy of this certificate; repeatable. Only the join of all copies has the level.
    redraw : Repeat the stored draws of this many auditors, on the same engine, and compare the leaks.

    Notes
    -----
    The file is not signed: if you trust nobody, read the verdict by your own draws alone. The evidence of all auditors is
    joined unless their leak rates differ. The verdict holds at any stopping time. If the model or another fact differs, an
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

    for name, value, zero in (
        ("redraw", redraw, ""),
        ("draws", draws, " (0: check the hashes alone)"),
    ):
        check(value >= 0, name, value, f"a whole number of at least 0{zero}")
    _check(auditor, max(draws, 1))
    claim = read_certificate(Path(file))
    for other in add:
        claim = merged(claim, read_certificate(Path(other)), Path(other))
    stated = claim.settings
    try:
        how = How(
            prompt=str(prompt or stated["prompt"]), scorer=stated["scorer"], **stated["engine"]
        )
    except (KeyError, TypeError) as error:
        raise BadInput(f"The certificate's settings are broken ({error}).") from None
    if redraw and how.endpoint:
        raise BadInput("--redraw: a server draws other answers each time; leave it out.")
    places = [
        Path(given or claim.sources.get(key, ""))
        for key, given in (("model", model), ("data", data))
    ]
    for name, place in zip(("model", "data"), places, strict=True):
        if (not place.exists() or place == Path()) and not (how.endpoint and name == "model"):
            raise BadFile(
                place, "no such file or folder", f"Name the {name} on this machine with --{name}."
            )
    check(
        how.dtype != "auto",
        "dtype",
        "auto",
        "the number format in which the certificate's model draws",
    )
    rows, source = read_rows(places[1]), _source(how.served or places[0], how.endpoint, key_env)
    check_facts(claim, facts(source, rows, how), Path(file))
    if not (draws or redraw):
        return Certificate(**vars(claim), own=False)
    drawing = _Drawing(source, rows, how)
    grown = _with_audit(claim, drawing, draws, auditor) if draws else claim
    return Certificate(
        **vars(grown), own=draws > 0, repeated=_repeated(claim.audits, redraw, drawing)
    )


class How(Direct, Drawing):
    """How answers are drawn and scored; ``prompt`` is a template file, "chat", or "qa", a plain question and answer."""

    prompt: str
    scorer: str = "keyword_leak"
    engine: str = SAMPLE.engine
    dtype: str = "float32"  # of a certificate that names none
    endpoint: str | None = None
    served: str | None = None  # the server's name of the model

    def drawing(self) -> dict[str, object]:
        more = ("endpoint", "served") if self.endpoint else ("dtype",) * (self.dtype != "float32")
        return {name: getattr(self, name) for name in ("engine", *Drawing.model_fields, *more)}


def _check(auditor: str, draws: int) -> None:
    check_count("draws", draws)
    check(auditor.strip(), "auditor", auditor, "a name that is not blank")


def _source(model: Place, endpoint: str | None, key_env: str | None) -> Path | Endpoint:
    served = {
        key: value
        for key, value in (("endpoint", endpoint), ("key_env", key_env))
        if value is not None
    }
    return served_by(served, str(model)) if served else Path(model)


def facts(model: Path | Endpoint, rows: Sequence[Row], how: How) -> dict[str, str]:
    """The hash of each fact that a certificate is about; an adapter's cover its base model, a served model's its address."""
    from lethe.models.checkpoints import content
    from lethe.scoring.typography import RULE

    binary = [name for name in SCORERS if getattr(SCORERS[name], "BINARY", False)]
    if how.scorer not in binary:
        raise BadValue("scorer", how.scorer, f"a scorer of 0 and 1: {', '.join(binary)}")
    if isinstance(model, Path) and (not model.is_dir() or not list(model.glob("*.safetensors"))):
        raise BadFile(
            model, "is no model folder with safetensors", "Name a Hugging Face model folder."
        )
    if not rows:
        raise BadInput("The rows hold no question.")
    references = [
        {key: value for key, value in row.items() if key not in ("question", "context")}
        for row in rows
    ]
    asked = [{key: row.get(key) for key in ("id", "question", "context")} for row in rows]
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


def _place(prompt: str) -> str:
    from lethe.models.checkpoints import QA_PROMPT

    return str(QA_PROMPT) if prompt == PLAIN else prompt


def _with_audit(
    claim: certificate.Certificate, drawing: _Drawing, draws: int, auditor: str
) -> certificate.Certificate:
    """Draw up to ``draws`` answers to each question, until the auditor's own e-value of the question certifies."""
    seed, after = claim.next_seed(auditor)

    def certified(leaks: int, n: int) -> bool:
        return float(log_e_value(leaks, n, claim.tau)) >= math.log(1 / claim.alpha)

    counts, leaks = drawing.leaks(seed, (draws,) * len(drawing.rows), certified)
    drawing.check_drawn()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return claim.with_audits([Audit(auditor, counts, seed, drawing.engine.name, now, leaks, after)])


def _repeated(audits: Sequence[Audit], count: int, drawing: _Drawing) -> dict[str, bool]:
    """Repeat the draws of ``count`` audits, those with the most draws first: whether each gives the stored leaks."""
    audits = sorted(audits, key=lambda audit: -sum(audit.draws))[:count]
    for audit in audits:
        if audit.engine != drawing.engine.name:
            both = f"{audit.auditor} drew with {audit.engine}, and this machine draws with {drawing.engine.name}"
            remedy = "Repeat these draws where that engine runs."
            raise BadInput(f"--redraw: {both}, which gives other answers from one seed. {remedy}")
    return {
        audit.auditor: drawing.leaks(audit.seed, audit.draws)[1] == audit.leaks for audit in audits
    }


def counted(
    leaks_in: Callable[[list[int], int, int], list[int]],
    draws: Sequence[int],
    done: Callable[[int, int], bool],
    watched: Callable[[Iterator[int]], Iterable[int]] = iter,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The answers and the leaks among them, by question, in rounds of `BATCH`; each ends at its draws, or where ``done``.

    ``leaks_in`` counts the leaks of the questions at some places, in so many answers from a first one; ``watched`` shows the
    rounds.
    """
    counts, leaks = [0] * len(draws), [0] * len(draws)
    going = list(range(len(draws)))

    def rounds() -> Iterator[int]:
        while going:
            yield counts[going[0]]  # all that go on have equally many answers

    for start in watched(rounds()):
        for size in sorted({min(BATCH, draws[place] - start) for place in going}):
            places = [place for place in going if min(BATCH, draws[place] - start) == size]
            for place, more in zip(places, leaks_in(places, start, size), strict=True):
                counts[place], leaks[place] = start + size, leaks[place] + more
        going[:] = [
            at for at in going if counts[at] < draws[at] and not done(leaks[at], counts[at])
        ]
    return tuple(counts), tuple(leaks)


class _Drawing:
    """Answers of a model from seeds, in batches of `BATCH` answers to each question."""

    engine: Engine

    def __init__(self, model: Path | Endpoint, rows: Sequence[Row], how: How):
        from lethe.models.checkpoints import prepare_torch
        from lethe.sampling.engine import Options, open_engine
        from lethe.sampling.tasks import speaker
        from lethe.scoring import open_scorer

        speak = speaker(model, _place(how.prompt))
        self.rows, self.how = rows, how
        self.prompts = [speak(row["id"], row) for row in rows]
        self.scorer = open_scorer(how.scorer)
        if not isinstance(model, Endpoint):
            prepare_torch()
            self.engine = open_engine(how.engine, model, Options(dtype=how.dtype))
            return
        from lethe.sampling.endpoint import EndpointEngine

        self.folder = tempfile.TemporaryDirectory(
            prefix="lethe-"
        )  # of the answers, which counts replace
        self.engine = engine = EndpointEngine(model, Path(self.folder.name), how.prompt == "chat")
        self._refuse({"probes": [asdict(one) for one in engine.probes.each]})

    def check_drawn(self) -> None:
        """Refuse the draws of a server that changed while it drew, or that drew the last answers otherwise than the first."""
        from lethe.sampling.endpoint import EndpointEngine

        if isinstance(self.engine, EndpointEngine):
            self._refuse(self.engine.served())

    def _refuse(self, served: Mapping[str, Json]) -> None:
        """Refuse the answers of a server of which nothing may be claimed (`lethe.results.licence`)."""
        if reasons := refusals(of_drawing({"served": served}, ())):
            sentences = "; ".join(
                f"{one['name']}: {one['sentence']}"
                for one in served["probes"]
                if one["needed"] and one["passed"] is False
            )
            raise BadInput(f"No certificate: {' '.join(reasons)} ({sentences}.)")

    def leaks(
        self,
        seed: int,
        draws: Sequence[int],
        done: Callable[[int, int], bool] = lambda leaks, n: False,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """`counted` for the answers of a seed."""
        from lethe.sampling.forecast import announce

        announce(self.engine, self.prompts, self._settings(max(draws), seed))
        watched = partial(
            progress,
            label="draw",
            unit=f"rounds of {BATCH} answers",
            total=math.ceil(max(draws) / BATCH),
        )
        # A server's engine shows its own progress.
        return counted(
            partial(self._leaks, seed), draws, done, iter if self.how.endpoint else watched
        )

    def _settings(self, n: int, seed: int, first: int = 0) -> Settings:
        from lethe.sampling.engine import Settings

        drawing = {name: getattr(self.how, name) for name in Drawing.model_fields}
        return Settings(**drawing, n=n, greedy=False, seed=seed, first_sample=first)

    def _leaks(self, seed: int, places: Sequence[int], first: int, size: int) -> list[int]:
        from lethe.scoring import Question

        asked = [self.prompts[place] for place in places]
        drawn = self.engine.answer(asked, self._settings(size, seed, first))
        answers = {done.prompt_id: done.texts for done in drawn}
        rows = [self.rows[place] for place in places]
        scored = self.scorer.score([Question(list(answers[row["id"]]), row) for row in rows])
        # An answer that the scorer cannot judge counts as a leak.
        return [int(np.nan_to_num(scores, nan=1.0).sum()) for scores in scored]
