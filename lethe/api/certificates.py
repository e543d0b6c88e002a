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
from lethe.config.fields import Direct
from lethe.config.measuring import SAMPLE, Drawing, Endpoint, scorer_params
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
ASKED = ("question", "context")  # the keys of a row that make its prompt
PLAIN = "qa"  # the package's own template, whose place is another on every machine


@dataclass(frozen=True, repr=False)
class Certificate(certificate.Certificate, TableWithSentences):
    """The result of `certify` and `verify`; ``write`` writes the file. ``drew``: whether this call drew the last audit;
    ``repeated``: whether the repeated draws of each auditor gave the stored leaks.
    """

    drew: bool = True
    repeated: Mapping[str, bool] = field(default_factory=dict)

    @property
    def homogeneous(self) -> bool:
        """Whether the auditors agree, and repeated draws with what the file states of them."""
        return all(self.repeated.values()) and super().homogeneous

    def alone(self, audit: Audit) -> Certificate:
        return replace(self, audits=(audit,), repeated={})

    def write(self, path: Path) -> None:
        for name, same in self.repeated.items():
            if not same:
                problem = (
                    f"not written, since {name}'s draws, repeated, give other leaks than stated"
                )
                raise BadInput(f"{path}: {problem}.")
        super().write(path)

    def to_frame(self) -> pd.DataFrame:
        """One row per question: its answers, the leaks among them, and the logarithm of its e-value."""
        leaks, n = self.counts()
        logs = self.log_e_values()
        return frame({"id": self.questions, "n": n, "leaks": leaks, "log_e_value": logs})

    def sentences(self) -> list[str]:
        lines = [self.statement()]
        if self.drew:
            lines.append(f"Your own draws alone: {self.alone(self.audits[-1]).sentence()}")
        if not all(self.repeated.values()):
            lines.append(
                "All auditors: Not joined: some draws are not as stated. Trust your own draws alone."
            )
        elif len(self.audits) > 1 or not self.drew:
            lines.append(f"All auditors: {self.sentence()}")
        for name, same in self.repeated.items():
            leaks = "the same leaks" if same else "other leaks than the file states"
            lines.append(f"The draws of {name}, repeated: {leaks}.")
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
        return {**self.as_dict(), "own": alone, "repeated": dict(self.repeated)}

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
    from lethe.data.rows import read_rows
    from lethe.models.checkpoints import default_prompt

    source = _source(model, endpoint, key_env)
    if endpoint:
        server_draws = "auto for a served model: the server draws"
        check(engine == "auto", "engine", engine, server_draws)
        check(dtype == "auto", "dtype", dtype, server_draws)
    if prompt is None:
        prompt = "chat" if default_prompt(source) == "chat" else PLAIN
    served = str(model) if endpoint else None
    how = How(
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
    _check(auditor, draws)
    check_alpha(alpha)
    check_share("tau", tau)
    hashes = facts(source, rows, how)
    _check_judged(rows, scorer)
    drawing = _Drawing(source, rows, how)
    if not endpoint:
        how = _as_drawn(how, drawing, Path(model))
    claim = certificate.Certificate(
        questions=tuple(row["id"] for row in rows),
        tau=tau,
        alpha=alpha,
        hashes={**hashes, "engine": digest(how.drawing())},
        settings={"prompt": how.prompt, "scorer": scorer, "engine": how.drawing()},
        sources={"model": str(model), "data": str(data)},
    )
    return Certificate(**vars(_with_audit(claim, drawing, draws, auditor)))


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


def _as_drawn(how: How, drawing: _Drawing, model: Path) -> How:
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

    check(redraw >= 0, "redraw", redraw, "a whole number of at least 0")
    check(draws >= 0, "draws", draws, "a whole number of at least 0 (0: check the hashes alone)")
    _check(auditor, max(draws, 1))
    claim = read_certificate(Path(file))
    for other in add:
        claim = merged(claim, read_certificate(Path(other)), Path(other))
    how = _stated(claim, prompt)
    if redraw and how.endpoint:
        raise BadInput("--redraw: a server draws other answers each time; leave it out.")
    of_model = Path(model or claim.sources.get("model", ""))
    of_data = Path(data or claim.sources.get("data", ""))
    if not how.endpoint:
        _check_exists(of_model, "model")
    _check_exists(of_data, "data")
    legal = "the number format in which the certificate's model draws"
    check(how.dtype != "auto", "dtype", "auto", legal)
    rows = read_rows(of_data)
    source = _source(how.served or of_model, how.endpoint, key_env)
    check_facts(claim, facts(source, rows, how), Path(file))
    if not (draws or redraw):
        return Certificate(**vars(claim), drew=False)
    drawing = _Drawing(source, rows, how)
    grown = _with_audit(claim, drawing, draws, auditor) if draws else claim
    repeated = _repeated(claim.audits, redraw, drawing)
    return Certificate(**vars(grown), drew=draws > 0, repeated=repeated)


def _stated(claim: certificate.Certificate, prompt: Place | None) -> How:
    """How a certificate says that answers are drawn and scored, with another place of its ``prompt`` if one is given."""
    settings = claim.settings
    try:
        return How(
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


class How(Direct, Drawing):
    """How answers are drawn and scored; ``prompt`` is a template file, "chat", or "qa", a plain question and answer."""

    prompt: str
    scorer: str = "keyword_leak"
    engine: str = SAMPLE.engine
    dtype: str = "float32"  # of a certificate that names none
    endpoint: str | None = None
    served: str | None = None  # the server's name of the model

    def drawing(self) -> dict[str, object]:
        """What a certificate states of the engine and its answers."""
        names = ["engine", *Drawing.model_fields]
        if self.endpoint:
            names += ["endpoint", "served"]
        elif self.dtype != "float32":
            names.append("dtype")
        return {name: getattr(self, name) for name in names}


def _check(auditor: str, draws: int) -> None:
    check_count("draws", draws)
    check(auditor.strip(), "auditor", auditor, "a name that is not blank")


def _source(model: Place, endpoint: str | None, key_env: str | None) -> Path | Endpoint:
    served: dict[str, object] = {}
    if endpoint is not None:
        served["endpoint"] = endpoint
    if key_env is not None:
        served["key_env"] = key_env
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
    done: Callable[[int, int], bool],
    watched: Callable[[Iterator[int]], Iterable[int]] = iter,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The answers and the leaks among them, by question, in rounds of `BATCH`; each ends at its draws, or where ``done``.

    ``leaks_in`` counts the leaks of the questions at some places, in so many answers from a first one; ``watched`` shows the
    rounds.
    """
    counts = [0] * len(draws)
    leaks = [0] * len(draws)
    open_places = list(range(len(draws)))

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
            if counts[place] < draws[place] and not done(leaks[place], counts[place]):
                still_open.append(place)
        open_places[:] = still_open
    return tuple(counts), tuple(leaks)


class _Drawing:
    """Answers of a model from seeds, in batches of `BATCH` answers to each question."""

    engine: Engine

    def __init__(self, model: Path | Endpoint, rows: Sequence[Row], how: How):
        from lethe.models.checkpoints import prepare_torch
        from lethe.sampling.engine import Options, open_engine
        from lethe.sampling.tasks import speaker
        from lethe.scoring.scorer import open_scorer

        speak = speaker(model, _place(how.prompt))
        self.rows, self.how = rows, how
        self.prompts = [speak(row["id"], row) for row in rows]
        self.scorer = open_scorer(how.scorer)
        if not isinstance(model, Endpoint):
            prepare_torch()
            self.engine = open_engine(how.engine, model, Options(dtype=how.dtype))
            return
        from lethe.sampling.endpoint import EndpointEngine

        # It holds the answers, which counts replace.
        self.folder = tempfile.TemporaryDirectory(prefix="lethe-")
        self.engine = engine = EndpointEngine(model, Path(self.folder.name), how.prompt == "chat")
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
        done: Callable[[int, int], bool] = lambda leaks, n: False,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """`counted` for the answers of a seed."""
        from lethe.sampling.forecast import announce

        most = max(draws)
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
        )

    def _leaks(self, seed: int, places: Sequence[int], first: int, size: int) -> list[int]:
        from lethe.scoring.verdicts import AnsweredRow

        asked = [self.prompts[place] for place in places]
        drawn = self.engine.answer(asked, self._settings(size, seed, first))
        texts_of = {answers.prompt_id: answers.texts for answers in drawn}
        rows = [self.rows[place] for place in places]
        questions = [AnsweredRow(list(texts_of[row["id"]]), row) for row in rows]
        scored = self.scorer.score(questions)
        # An answer that the scorer cannot judge counts as a leak.
        return [int(np.nan_to_num(scores, nan=1.0).sum()) for scores in scored]
