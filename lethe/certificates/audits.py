"""Audits of a certificate: new draws, draws again of single answers, and repeats of whole audits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from lethe.certificates import certificate
from lethe.certificates.certificate import Audit, Check
from lethe.certificates.drawing import SeededDraws
from lethe.certificates.draws import Draws, files_beside, read_draws, read_leaves
from lethe.certificates.spot_check import chosen, fresh_coin, mismatches_in, size_of
from lethe.errors import BadFile, BadInput
from lethe.statistics.anytime import Counts

TIME = "%Y-%m-%dT%H:%M:%SZ"
NOT_REPEATABLE = "{option}: the engine {engine} draws no single answer again; prefix on a CPU does for most models."


def audited(
    claim: certificate.Certificate,
    drawing: SeededDraws,
    draws: int,
    auditor: str,
    beside: SeededDraws | None,
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


def spot_checked(
    claim: certificate.Certificate, drawing: SeededDraws, file: Path, size: int, verifier: str
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


def repeated_audits(audits: Sequence[Audit], count: int, drawing: SeededDraws) -> dict[str, bool]:
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
