"""The draws of a certificate: hashes of what is certified, and answers from a stream that was never used before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lethe.config.evaluating import SAMPLE, Drawing
from lethe.config.fields import Direct
from lethe.errors import BadFile, BadInput, BadValue
from lethe.evaluation.certificate import Audit, Certificate, check_facts
from lethe.io.cache import cache_key, digest, module_of
from lethe.statistics.checks import check_alpha, check_count
from lethe.statistics.sequential import log_e_value

if TYPE_CHECKING:
    from lethe.io.artifacts import Row

WEIGHTS = ("*.safetensors", "config.json", "generation_config.json")
TOKENIZER = (
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt"),
    *("chat_template*", "*.model", "spiece.model"),
)
PLAIN = "qa"
BATCH = 64  # answers to a question between two looks at its e-value


class How(Direct, Drawing):
    """How answers are drawn and scored; ``prompt`` is a template file, "chat", or "qa", a plain question and answer."""

    prompt: str
    scorer: str = "keyword_leak"
    engine: str = SAMPLE.engine

    def drawing(self) -> dict[str, object]:
        """The settings that change the distribution of an answer."""
        return {name: getattr(self, name) for name in ("engine", *Drawing.model_fields)}


def how_of(settings: Mapping[str, object], prompt: str | None) -> How:
    """The settings of a certificate; ``prompt`` is the path of the template on this machine."""
    known: Any = settings
    try:
        return How(prompt=prompt or known["prompt"], scorer=known["scorer"], **known["engine"])
    except (KeyError, TypeError) as error:
        raise BadInput(f"The certificate's settings are broken ({error}).") from None


def facts(model: Path, rows: Sequence[Row], how: How) -> dict[str, str]:
    """The hash of each fact that a certificate is about."""
    from lethe.config.evaluating import scorer_params
    from lethe.registry import SCORERS

    if how.scorer not in SCORERS or not getattr(SCORERS[how.scorer], "BINARY", False):
        names = [name for name in SCORERS if getattr(SCORERS[name], "BINARY", False)]
        raise BadValue("scorer", how.scorer, f"a scorer of 0 and 1: {', '.join(names)}")
    if not model.is_dir() or not list(model.glob("*.safetensors")):
        raise BadFile(model, "is no model folder with safetensors", "Name a Hugging Face model folder.")
    if not rows:
        raise BadInput("The rows hold no question.")
    references = [{key: value for key, value in row.items() if key not in ("question", "context")} for row in rows]
    asked = [{key: row.get(key) for key in ("id", "question", "context")} for row in rows]
    settings = {"name": how.scorer, "params": scorer_params(how.scorer)}
    return {
        "weights": _weights(model),
        "tokenizer": _files(_tokenizer(model), TOKENIZER),
        "prompts": digest(asked, _template(how.prompt)),
        "scorer": cache_key(module_of(SCORERS[how.scorer]), settings=settings, references=digest(references)),
        "engine": digest(how.drawing()),
    }


def certify(
    model: Path, data: Path, rows: Sequence[Row], how: How, tau: float, alpha: float, draws: int, auditor: str
) -> Certificate:
    """Write the claim that every question leaks at most with a given probability, with the evidence of its draws."""
    from lethe.scoring import applies

    _check_auditor(auditor)
    check_alpha(alpha)
    check_count("draws", draws)
    if not 0 < tau < 1:
        raise BadValue("tau", tau, "a number between 0 and 1")
    hashes = facts(model, rows, how)
    unread = [row["id"] for row in rows if not applies(how.scorer, row)]
    if unread:
        raise BadInput(
            f"{how.scorer} can judge no answer to question {unread[0]!r} ({len(unread)} of {len(rows)} such questions): "
            "every answer would count as a leak, so no certificate is possible. Add keywords, leave these questions out, "
            "or use another scorer."
        )
    claim = Certificate(
        questions=tuple(row["id"] for row in rows),
        tau=tau,
        alpha=alpha,
        hashes=hashes,
        settings={"prompt": how.prompt, "scorer": how.scorer, "engine": how.drawing()},
        sources={"model": str(model), "data": str(data)},
    )
    return claim.with_audits([_audit(claim, model, rows, how, draws, auditor)])


def verify(
    found: Certificate, path: Path, model: Path, rows: Sequence[Row], how: How, draws: int, auditor: str
) -> Certificate:
    """Check the hashes, draw answers from a fresh stream, and multiply the e-values.

    Further parameters are those of `certify`.
    """
    _check_auditor(auditor)
    check_facts(found, facts(model, rows, how), path)
    if draws == 0:
        return found
    check_count("draws", draws)
    return found.with_audits([_audit(found, model, rows, how, draws, auditor)])


def repeated(found: Certificate, count: int, model: Path, rows: Sequence[Row], how: How) -> dict[str, bool]:
    """Repeat the draws of up to ``count`` audits, those with the most draws first: whether each gives the stored leaks.

    An engine draws the same answers from one seed; audits of another engine are refused.
    """
    audits = sorted(found.audits, key=lambda audit: -sum(audit.draws))[:count]
    drawing = _Drawing(model, rows, how)
    for audit in audits:
        if audit.engine != drawing.engine.name:
            raise BadInput(
                f"--redraw: {audit.auditor} drew with {audit.engine}, and this machine draws with {drawing.engine.name}, "
                "which gives other answers from one seed. Repeat these draws where that engine runs."
            )
    return {audit.auditor: drawing.leaks(audit.seed, audit.draws)[1] == audit.leaks for audit in audits}


def _check_auditor(auditor: str) -> None:
    """Require a name that distinguishes this auditor from others."""
    if not auditor.strip():
        raise BadValue("--auditor", auditor, "a name that is not blank")


def _audit(found: Certificate, model: Path, rows: Sequence[Row], how: How, draws: int, auditor: str) -> Audit:
    """Draw up to ``draws`` answers to each question, until the auditor's own e-value of the question certifies."""
    seed, after = found.next_seed(auditor)
    drawing = _Drawing(model, rows, how)

    def certified(leaks: int, n: int) -> bool:
        return float(log_e_value(leaks, n, found.tau)) >= math.log(1 / found.alpha)

    counts, leaks = drawing.leaks(seed, (draws,) * len(rows), certified)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Audit(auditor, counts, seed, drawing.engine.name, now, leaks, after)


class _Drawing:
    """Answers of a model from seeds, in batches of `BATCH` answers to each question."""

    def __init__(self, model: Path, rows: Sequence[Row], how: How):
        from lethe.models.checkpoints import prepare_torch
        from lethe.models.encoding import Encoder
        from lethe.sampling.engine import Prompt, checkpoint, open_engine
        from lethe.scoring import open_scorer

        prepare_torch()
        encoder = Encoder(checkpoint(model).tokenizer, _place(how.prompt))
        self.rows, self.how = rows, how
        self.prompts = [Prompt(row["id"], encoder.prompt(row)) for row in rows]
        self.engine = open_engine(how.engine, model, {"max_rows": 4096})
        self.scorer = open_scorer(how.scorer)

    def leaks(
        self, seed: int, draws: Sequence[int], done: Callable[[int, int], bool] = lambda leaks, n: False
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The answers and the leaks among them, per question; a question ends at its draws, or where ``done``."""
        counts, leaks = [0] * len(draws), [0] * len(draws)
        going = list(range(len(draws)))
        while going:
            start = counts[going[0]]  # all that go on have equally many answers
            for size in sorted({min(BATCH, draws[place] - start) for place in going}):
                places = [place for place in going if min(BATCH, draws[place] - start) == size]
                for place, more in zip(places, self._leaks(seed, places, start, size), strict=True):
                    counts[place], leaks[place] = start + size, leaks[place] + more
            going = [
                place for place in going if counts[place] < draws[place] and not done(leaks[place], counts[place])
            ]
        return tuple(counts), tuple(leaks)

    def _leaks(self, seed: int, places: Sequence[int], first: int, size: int) -> list[int]:
        from lethe.sampling.engine import Settings
        from lethe.scoring import Question

        drawing = {name: getattr(self.how, name) for name in Drawing.model_fields}
        settings = Settings(**drawing, n=size, greedy=False, seed=seed, first_sample=first)
        asked = [self.prompts[place] for place in places]
        answers = {done.prompt_id: done.texts for done in self.engine.answer(asked, settings)}
        rows = [self.rows[place] for place in places]
        scored = self.scorer.score([Question(list(answers[row["id"]]), row) for row in rows])
        # An answer that the scorer cannot judge counts as a leak.
        return [int(np.nan_to_num(scores, nan=1.0).sum()) for scores in scored]


def _weights(model: Path) -> str:
    """The hash of a model's weights; an adapter's hash covers its base model, wherever that is on this machine."""
    from lethe.models.checkpoints import content_hash

    return content_hash(model, lambda folder: _files(folder, WEIGHTS))


def _tokenizer(model: Path) -> Path:
    """The folder with the model's tokenizer; an adapter without a tokenizer takes that of its base model."""
    from lethe.models.checkpoints import base_of, has_tokenizer, is_adapter

    while is_adapter(model) and not has_tokenizer(model):
        model = base_of(model)
    return model


def _files(folder: Path, patterns: Sequence[str]) -> str:
    """The hash of the folder's files that match the patterns."""
    from lethe.io.cache import content_digest

    names = sorted({path.name for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    return digest([[name, content_digest(folder / name)] for name in names])


def _template(prompt: str) -> str:
    """The template's content; "chat" is the tokenizer's own, which its hash covers."""
    from lethe.io.json_files import read_text

    return prompt if prompt == "chat" else read_text(_place(prompt))


def _place(prompt: str) -> str:
    """The template for the encoder: the package's own file has a name that is the same on every machine."""
    from lethe.models.in_memory import QA_PROMPT

    return str(QA_PROMPT) if prompt == PLAIN else prompt


def default_template(model: Path) -> str:
    """Return "chat" where the tokenizer has a chat template, else "qa"."""
    from lethe.models.in_memory import default_prompt

    return "chat" if default_prompt(model) == "chat" else PLAIN
