"""Stage `twins@MODEL`: the score of every candidate of every drawn secret, and the ranks of the true ones.

The score of a candidate is the sum of the log-probabilities of its answer's tokens with its end, after the row's own
question, in nats; the scores of the rows that state one secret are added. It was fixed before any score was seen. Scores
that `twins.scores` declares beside it, the membership attacks of `lethe.scoring.likelihood`, stand in columns of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.measuring import SERVED, Endpoint, ModelEntry
from lethe.config.twins import LEARNED, REFERENCE, Score, Twins
from lethe.data.sealed import order_key
from lethe.data.secrets import Secret, questions_of, secrets_of
from lethe.errors import BadInput, plural
from lethe.io.artifacts import Row, read_split
from lethe.io.files import SCHEMA_VERSION, Json, write_json
from lethe.io.tables import write_parquet
from lethe.models.checkpoints import Origin, Source, opened, prepare_torch
from lethe.models.encoding import Encoder, Example
from lethe.models.likelihood import AnswerTokens, answer_tokens
from lethe.results import table
from lethe.results.trace import (
    GIVEN,
    UNREAD,
    StatedBy,
    Trace,
    by_question,
    measured_rows,
    refused_rows,
)
from lethe.scoring.learned import Discriminant
from lethe.scoring.likelihood import Item, mia_loss, mia_min_k, mia_min_k_plus_plus, mia_zlib
from lethe.statistics.twins import TwinTest, ranks_of, twin_test

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel

# The declared scores that one model gives.
ATTACKS: dict[str, Callable[[Item], float]] = {
    "loss": mia_loss,
    "zlib": mia_zlib,
    "min_k": mia_min_k,
    "min_k_plus_plus": mia_min_k_plus_plus,
}
HELD_OUT = "heldout"  # the split of rows, and of secrets, that no model was trained on
LEARNED_FROM = 200  # rows of each kind, from the first: more change a dozen weights little
TOO_LONG = "no secret has candidates that all fit into the model's context"


@dataclass(frozen=True)
class KnownRows:
    """Rows apart from those under test: ``members`` that every model was trained on, and ``others`` that none was."""

    members: Sequence[Row]
    others: Sequence[Row]

    @classmethod
    def of(cls, root: Path) -> KnownRows:
        """The first rows of the splits retain and heldout; raises `BadInput` where one of both has fewer than two."""
        rows_of_split = {}
        for split in ("retain", HELD_OUT):
            rows: Sequence[Row] = ()
            if (root / "dataset" / f"{split}.jsonl").is_file():
                rows = read_split(split, root / "dataset")
            _check_enough(len(rows), split)
            rows_of_split[split] = rows[:LEARNED_FROM]
        return cls(rows_of_split["retain"], rows_of_split[HELD_OUT])


def _check_enough(rows: int, split: str) -> None:
    """Raise `BadInput` unless a learned score has two rows of the split."""
    if rows < 2:
        raise BadInput(
            f"twins.scores has {LEARNED}, which learns from rows of retain and of {HELD_OUT}: got "
            f"{plural(rows, 'row')} of {split}; must be at least 2 that fit into the model's context."
        )


@dataclass(frozen=True)
class ScoredCandidates:
    """The candidates of one secret under a model, the true one first: (k,) nats, and (k,) numbers of tokens.

    ``further`` has (k,) values of each declared score, higher where a candidate looks more like training data.
    """

    secret: Secret
    log_probs: np.ndarray
    tokens: np.ndarray
    further: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoredSecrets:
    """The candidates of the secrets that could be scored, or the ``reason`` why none was; of a server with the tokens that
    its replies may have taken."""

    candidates: Sequence[ScoredCandidates] = ()
    reason: str = ""
    stated_by: StatedBy | None = None
    spent: int = 0


def run(
    name: str,
    twins: Twins | None,
    alpha: float,
    prompt: str,
    model: ModelEntry,
    root: Path = Path("data"),
    source: Origin | None = None,
    stated: ScoredSecrets | None = None,
) -> None:
    """Write ``root/twins/name.parquet`` and ``root/results/twins/name.parquet``, both empty where nothing was drawn, and the
    p-value for `dvc metrics`.

    ``alpha`` is that of the ends of shares and of epsilon; ``source`` replaces the folder ``model.path``, and ``stated`` is
    what a server stated of the secrets, where it was asked (`lethe.steps.stated_secrets`).
    """
    secrets = []
    if twins is not None:
        secrets = secrets_of(read_split("forget", root / "dataset"))
    found = stated or ScoredSecrets()
    origin = source or Path(model.path)
    if secrets and stated is None:
        declared = twins.scores if twins is not None else ()
        known = KnownRows.of(root) if LEARNED in declared else None
        found = _scored(origin, secrets, prompt, f"twins {name}", declared, known)

    rows: list[table.Result] = []
    scored = found.candidates
    if found.reason:
        rows = refused_rows(name, found.reason, found.stated_by)
        print(f"{name}: no twin test: {found.reason}")
    elif scored:
        test = tested(scored, order_key(twins))
        names = tuple(of_secret.secret.name for of_secret in scored)
        trace = Trace(test, names, alpha, stated_by=found.stated_by)
        rows = by_question(measured_rows(name, trace), questions_of(secrets))
        rows += _held_out(name, origin, prompt, order_key(twins), root)
        drawn = plural(len(names), "secret")
        print(f"{name}: the true candidates of {drawn} ranked, p {test.p:.2g}")
    write_parquet(root / "twins" / f"{name}.parquet", frame_of(scored))
    table.write(table.place(root, "twins", name), rows)

    shown: dict[str, float] = {"schema": SCHEMA_VERSION}
    p = table.Numbers(rows).estimate("trace_p", GIVEN)
    if p is not None:
        shown["trace_p"] = p
    write_json(root / "twins" / f"{name}.json", shown)


def _held_out(name: str, source: Origin, prompt: str, key: bytes, root: Path) -> list[table.Result]:
    """The row of the test on secrets that no model was trained on, which none may reject; none where there are no such."""
    if not (root / "dataset" / f"{HELD_OUT}.jsonl").is_file():
        return []
    secrets = secrets_of(read_split(HELD_OUT, root / "dataset"))
    if not secrets:
        return []
    found = _scored(source, secrets, prompt, f"twins {name} {HELD_OUT}", ())
    if found.reason:
        return []
    test = tested(found.candidates, key)
    rows = table.Rows(name)
    facts: dict[str, Json] = {"direction": test.direction, "ranks": list(test.ranks)}
    rows.add("model", "twin_heldout_p", GIVEN, test.p, n=len(test.ranks), evidence=facts)
    return rows.rows


def _scored(
    source: Origin,
    secrets: Sequence[Secret],
    prompt: str,
    label: str,
    declared: Sequence[Score],
    known: KnownRows | None = None,
) -> ScoredSecrets:
    """Return the scores of a model with weights."""
    if isinstance(source, Endpoint) or source == Path(SERVED):
        return ScoredSecrets(reason=UNREAD)
    scored = candidate_scores(source, secrets, prompt, label, declared, known)
    return ScoredSecrets(scored, reason="" if scored else TOO_LONG)


def candidate_scores(
    source: Source,
    secrets: Sequence[Secret],
    prompt: str,
    label: str,
    declared: Sequence[Score] = (),
    known: KnownRows | None = None,
) -> list[ScoredCandidates]:
    """Return the scores of the secrets whose candidates all fit into the model's context.

    Whether a secret is left out depends on its set of candidates alone, and not on which of them was drawn. ``declared``
    names further scores; *reference* is none of them here, since it is a difference of two models' scores. *learned* needs
    the ``known`` rows.
    """
    import torch

    prepare_torch()
    model, tokenizer = opened(source)
    encoder = Encoder(tokenizer, prompt)
    examples: list[Example] = []
    for secret in secrets:
        for row, answers in zip(secret.rows, secret.answers, strict=True):
            for answer in answers:
                examples.append(encoder.example(row, answer))
    padding = tokenizer.pad_token_id or 0
    tokens = answer_tokens(model, examples, padding, label=label)
    measures = dict(ATTACKS)
    if known is not None and LEARNED in declared:
        measures[LEARNED] = _learned(model, encoder, padding, known, f"{label} {LEARNED}")
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # free the memory for the sampling that may follow

    scored = []
    start = 0
    for secret in secrets:
        shape = (len(secret.rows), len(secret.candidates))
        of_secret = tokens[start : start + math.prod(shape)]
        start += len(of_secret)
        lengths = np.array([len(answer.log_probs) for answer in of_secret])
        if not lengths.all():
            continue
        totals = np.array([answer.log_probs.sum() for answer in of_secret])
        nats = totals.reshape(shape).sum(axis=0)
        n_tokens = lengths.reshape(shape).sum(axis=0)
        further: dict[str, np.ndarray] = {}
        for name in declared:
            if name != REFERENCE:
                further[name] = _further(measures[name], secret, of_secret)
        scored.append(ScoredCandidates(secret, nats, n_tokens, further))
    if len(scored) < len(secrets):
        left_out = len(secrets) - len(scored)
        print(f"{label}: {plural(left_out, 'secret')} left out, longer than the model's context")
    return scored


def _learned(
    model: PreTrainedModel, encoder: Encoder, padding: int, known: KnownRows, label: str
) -> Callable[[Item], float]:
    """The score that a model's ``known`` rows teach; rows that exceed its context teach nothing.

    Raises `BadInput` where fewer than two of a kind fit.
    """
    read: list[list[AnswerTokens]] = []
    for split, rows in (("retain", known.members), (HELD_OUT, known.others)):
        examples = [encoder.example(row) for row in rows]
        answers = answer_tokens(model, examples, padding, label=label)
        fitting = [answer for answer in answers if len(answer.log_probs)]
        _check_enough(len(fitting), split)
        read.append(fitting)
    discriminant = Discriminant.learned(*read)
    return lambda item: discriminant.score(item.answer)


def _further(
    measure: Callable[[Item], float], secret: Secret, tokens: Sequence[AnswerTokens]
) -> np.ndarray:
    """Return (k,) the sum over the secret's rows of a membership attack's score of each candidate."""
    texts = [text for answers in secret.answers for text in answers]
    values = [measure(Item(text, of_text)) for text, of_text in zip(texts, tokens, strict=True)]
    return np.reshape(values, (len(secret.rows), -1)).sum(axis=0)


def tested(scored: Sequence[ScoredCandidates], key: bytes) -> TwinTest:
    """Return the twin test of the ranks of the true candidates."""
    ranks = []
    candidates = []
    for of_secret in scored:
        order = of_secret.secret.order(key)
        (rank,) = ranks_of([of_secret.log_probs], [0], [order])
        ranks.append(int(rank))
        candidates.append(len(of_secret.log_probs))
    return twin_test(ranks, candidates)


def frame_of(scored: Sequence[ScoredCandidates]) -> pd.DataFrame:
    """Return a row per candidate: ``secret, candidate, log_prob, tokens``, 1 as ``true`` of the true one, and a column for
    each declared score.
    """
    import pandas as pd

    rows = []
    for of_secret in scored:
        for place, candidate in enumerate(of_secret.secret.candidates):
            log_prob = float(of_secret.log_probs[place])
            tokens = int(of_secret.tokens[place])
            is_true = int(place == 0)
            rows.append((of_secret.secret.name, candidate, log_prob, tokens, is_true))
    types = {
        "secret": object,
        "candidate": object,
        "log_prob": float,
        "tokens": int,
        "true": int,
    }
    scores = pd.DataFrame(rows, columns=list(types)).astype(types)
    declared = scored[0].further if scored else ()
    for name in declared:
        scores[name] = np.concatenate([of_secret.further[name] for of_secret in scored])
    return scores
