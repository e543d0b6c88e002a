"""The candidates of drawn secrets under a model that a server answers for: what it states of each text, asked once and kept.

A server states the log-probabilities of a text's tokens, without the answer's end, where it repeats a prompt with them. The
stage `twins` of a pipeline asks no server, so that these requests stand apart from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lethe.config.measuring import Endpoint
from lethe.data.secrets import Secret
from lethe.errors import plural
from lethe.identity import digest
from lethe.io.cache import keep, recall
from lethe.models.encoding import CHAT, template_of, worded
from lethe.models.endpoint_client import CapReached
from lethe.models.endpoint_texts import GivenText, StatedText, stated_texts
from lethe.results.trace import COUNTED, TESTED_BEFORE, UNREAD, Basis, StatedBy
from lethe.steps.twins import ScoredCandidates, ScoredSecrets

SILENT = 3  # secrets whose replies all come and state nothing, before no further one is asked for


def stated_by(
    server: Endpoint, secrets: Sequence[Secret], prompt: str, scratch: Path
) -> ScoredSecrets:
    """Return the scores that a server states.

    A candidate without a score has the lowest, so that a server that refuses the true ones shows them. What is missing does
    not depend on the true candidate either, as long as the server does not know it: given all scores, the missing ones too,
    and the public order of ties, a rank is a bijection of the place that was drawn. A secret without any score is left out.
    The candidates are asked for in the order of ties, so that no request, and no change of the server on the way, tells the
    true one. Where all replies for the first secrets come and state nothing, or no score comes at all, answers are counted.

    Parameters
    ----------
    server
        The address and the settings of the server.
    secrets
        The drawn secrets of the forget set.
    prompt
        The template of prompts.
    scratch
        The folder that keeps what the server stated, by text.

    Raises
    ------
    CapReached
        If the next secret may need more tokens than the cap leaves.
    """
    template = template_of(prompt)
    basis_file = _basis_file(server, secrets, scratch)
    earlier = recall(basis_file)
    if earlier is not None and earlier["basis"] == COUNTED:
        return ScoredSecrets(reason=UNREAD, stated_by=StatedBy(**earlier["stated_by"]))

    scored: list[ScoredCandidates] = []
    partly: list[str] = []  # secrets of which some candidates have no score
    missing: Counter[str] = Counter()  # texts without a score, by the reason
    names: dict[str, None] = {}  # of the models that answered, in order
    silent = 0
    spent = 0  # tokens
    for secret in secrets:
        texts = _given_texts(secret, template)
        most = sum(text.most for text in texts)
        if server.max_tokens_total is not None and spent + most > server.max_tokens_total:
            raise CapReached(
                f"The candidates of {plural(len(secrets), 'secret')} need more than the cap of {server.max_tokens_total:,} "
                "tokens. What the server stated is kept: give a larger --max-tokens-total and the same command."
            )

        stated = _kept_or_stated(server, template == CHAT, texts, scratch)
        spent += sum(text.most for text, of in zip(texts, stated, strict=True) if of.came)
        missing.update(text.missing for text in stated if text.missing)
        names |= dict.fromkeys(text.model for text in stated if not text.missing)

        of_secret = _scored_by_order(secret, stated)
        has_score = np.isfinite(of_secret.log_probs)
        if has_score.any():
            scored.append(of_secret)
            if not has_score.all():
                partly.append(secret.name)
        elif all(text.missing and text.came for text in stated):
            silent += 1
        if silent == SILENT and not scored:
            break

    told = StatedBy(str(server), dict(missing), len(secrets) - len(scored), partly, list(names))
    if earlier is not None:
        return ScoredSecrets(scored, "" if scored else TESTED_BEFORE, told, spent)

    # The first test decides for good: a second one by another basis would be a second chance.
    basis: Basis = "given answers" if scored else "sampled"
    keep(basis_file, {"basis": basis, "stated_by": vars(told)})
    return ScoredSecrets(scored, "" if scored else UNREAD, told, spent)


def _basis_file(server: Endpoint, secrets: Sequence[Secret], scratch: Path) -> Path:
    """What keeps the basis of the first test of a draw, which no later command changes, with whatever prompt it asks."""
    drawn = [(secret.name, sorted(secret.candidates)) for secret in secrets]
    return scratch / "twins" / f"{digest('basis', server.identity, drawn)}.json"


def _kept_or_stated(
    server: Endpoint, chat: bool, texts: Sequence[GivenText], scratch: Path
) -> list[StatedText]:
    """What the server states of the texts of a secret; what it did not state is kept too, since a test is read once."""
    asked = digest(server.identity, chat, list(map(vars, texts)))
    place = scratch / "twins" / f"{asked}.json"
    kept = recall(place)
    if kept is not None:
        return [StatedText(**text) for text in kept]

    stated = stated_texts(server, chat, texts)
    records = []
    for text in stated:
        record = vars(text).copy()
        if text.missing:
            del record["nats"]  # JSON has no infinity
        records.append(record)
    keep(place, records)
    return stated


def _given_texts(secret: Secret, template: str) -> list[GivenText]:
    """The candidates of a secret in the order of ties, those of one row after those of another."""
    texts = []
    for row, answers in zip(secret.rows, secret.answers, strict=True):
        asked = worded(template, row)
        gap = " "
        if template == CHAT or not asked or asked[-1].isspace():
            gap = ""
        for place in np.argsort(secret.order()):
            texts.append(GivenText(row["id"], asked, gap + answers[place]))
    return texts


def _scored_by_order(secret: Secret, stated: Sequence[StatedText]) -> ScoredCandidates:
    """The scores of a secret from those of `_given_texts`, the true candidate first."""
    shape = (len(secret.rows), len(secret.candidates))
    nats = np.reshape([text.nats for text in stated], shape).sum(axis=0)
    tokens = np.reshape([text.tokens for text in stated], shape).sum(axis=0)
    place_in_order = secret.order()
    return ScoredCandidates(secret, nats[place_in_order], tokens[place_in_order])
