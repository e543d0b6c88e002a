"""`lethe.attest`: a statement of a run's bound that other tools read, signed by the user's key; and its verification."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from lethe import __version__
from lethe.api.parameters import Place, Typed, documented
from lethe.api.result import TableWithSentences, View, frame
from lethe.certificates import check as checker
from lethe.certificates import envelope as envelopes
from lethe.certificates import statement as statements
from lethe.certificates.draws import Draws, draws_of, files_beside, read_draws
from lethe.certificates.envelope import Envelope, canonical
from lethe.certificates.signers import SigningKey, is_signed_by
from lethe.certificates.statement import LEAKS, OPEN, About, CertifiedEnd, Served
from lethe.errors import BadFile, BadInput, BadValue, MissingArtifact, check, plural, shortened
from lethe.io.artifacts import read_items
from lethe.io.files import (
    Json,
    atomic_file,
    jsonl_text,
    read_artifact,
    read_json,
    without_doubles,
)
from lethe.io.yaml import read_yaml
from lethe.results import table
from lethe.results.exact_bounds import certificates_of
from lethe.results.licence import reasons_of
from lethe.results.table import Result
from lethe.statistics.bound import Side
from lethe.statistics.leak_trees import Certificates, Version

if TYPE_CHECKING:
    import pandas as pd

    from lethe.models.listing import Listing

# Text for the command line too: as a path the address awskms:///alias/mine loses two slashes.
KeyOrAddress: TypeAlias = Annotated[str | os.PathLike[str] | None, Typed(str)]
UNNAMED = "urn:lethe:unnamed"  # an evaluator who gives no name and no key
SHA256 = re.compile(r"[0-9a-f]{64}")
CONTRADICTED = checker.Fraction(1, 10**6)  # the level at which counts refute another end
DRAWING = ("temperature", "top_p", "top_k", "max_new_tokens", "max_thinking_tokens")
LAW = ("temperature", "top_p", "top_k", "max_new_tokens", "adaptive_threshold")
ENGINE = ("dtype", "seed", "stream", "stop")
# What a reader of a statement wants to know besides its claims; a verifier names each that is absent.
STATED = (
    *("evaluator.id", "evaluatedAt", "assuranceLevel", "subjectProfile", "sampleSize"),
    *("model.name", "model.digest", "dataset.name", "dataset.digest", "harness.version"),
    *("lethe.access", "lethe.engine", "lethe.scorer", "lethe.notCovered"),
)
NOT_COVERED = (
    "other wordings of the questions",
    "fine-tuned or quantised copies",
    "how often other answers were drawn before these",
)


@dataclass(frozen=True, repr=False)
class Attestation(TableWithSentences):
    """The result of `attest`: the ``statement``, its ``envelope`` if a key signed it, and the ``draws`` behind it."""

    claims: tuple[CertifiedEnd, ...]
    about: About
    draws: Draws
    key: SigningKey | None = None

    @property
    def word(self) -> str:
        """bounded, leaks or open."""
        return self.claims[0].word

    @property
    def passed(self) -> bool:
        """Whether the bound satisfies the threshold."""
        return self.claims[0].passed

    def statement(self, draws_name: str = "draws.json") -> dict[str, Json]:
        """The statement; ``draws_name`` is the file of the draws."""
        return statements.statement(self.about, self.claims, self.draws, draws_name)

    def write(self, path: Place) -> list[Path]:
        """Write the envelope, or without a key the unsigned statement, the draws and their leaf hashes; return the files.

        Of a served model the last file is the record to which the statement commits, and which it does not tell.
        """
        path = Path(path)
        draws, leaves = files_beside(path)
        content = canonical(self.statement(draws.name))
        if self.key is not None:
            content = canonical(self.key.sign(content).as_json())
        with atomic_file(path) as temporary:
            temporary.write_bytes(content)
        self.draws.write(draws, leaves)
        files = [path, draws, leaves]
        if isinstance(self.about.of, Served):
            files.append(path.with_name(f"{path.stem}.served.json"))
            with atomic_file(files[-1]) as temporary:
                temporary.write_bytes(self.about.of.content)
        return files

    def to_frame(self) -> pd.DataFrame:
        """One row per question: its answers, and the leaks among them."""
        rows = [(draws.id, draws.n, len(draws.leaks_at)) for draws in self.draws.questions]
        return frame(rows, columns=["id", "n", "leaks"])

    def sentences(self) -> list[str]:
        lines = []
        for claim in self.claims:
            lines.append(claim.bound.sentence("The probability of a leak"))
        threshold = f"{self.claims[0].threshold:f}"
        meaning = {
            LEAKS: f"some question is proved to leak more often than {threshold}",
            OPEN: f"it is proved neither that every question leaks at most {threshold} nor that one leaks more often",
        }
        word = self.word
        lines.append(f"The word is {word}: {meaning.get(word, f'it is at most {threshold}')}.")
        return lines

    def as_json(self) -> dict[str, object]:
        return {"word": self.word, "passed": self.passed, "statement": self.statement()}

    def views(self) -> list[View]:
        return [View("", notes=self.sentences())]


def results_of(run: Path, model: str) -> Path:
    """The table of a model's results; `BadFile` where the run has none, `BadValue` where it has none of this ``model``."""
    if not run.is_dir():
        raise BadFile(run, "no such folder", "Name a pipeline's data folder, or one of data/eval.")
    path = table.place(run, "metrics", model)
    if path.is_file():
        return path
    known = sorted(measured.stem for measured in path.parent.glob("*.parquet"))
    if not known:
        raise MissingArtifact(path, "stage metrics")
    raise BadValue("model", model, f"a model of this run: {', '.join(known)}")


@documented
def attest(
    run: Place,
    *,
    model: str,
    fail_above: float,
    key: KeyOrAddress = None,
    password_env: str | None = None,
    public_key: Place | None = None,
    folder: Place | None = None,
    evaluator: str | None = None,
    assurance: Literal["self_attested", "third_party"] = "self_attested",
) -> Attestation:
    """State a run's bound in a form that policy engines and auditors read, signed by your own key.

    Parameters
    ----------
    run : The pipeline's data, or the folder of one `lethe eval` (data/eval/NAME).
    model : The name of the model in the run.
    fail_above : The largest leak probability that passes; the command's exit status is 1 where the bound is above it.
    key : Your Ed25519 private key in the OpenSSH or PEM form, or a key's address for securesystemslib, such as
        awskms:alias/mine, hsm:2 or file2:key.pem. [default: the statement stays unsigned]
    password_env : The environment variable that holds the password (the PIN) of the key.
    public_key : The public half of a key at an address.
    folder : The folder of the model. [default: as the run says]
    evaluator : A URI of who evaluates, such as mailto:privacy@example.org. [default: a name of the key]
    assurance : self_attested, or third_party if you are not the maker of the model.

    Notes
    -----
    Without a key sign the statement by other means: `cosign attest-blob --statement`, or `ssh-keygen -Y sign`. Lethe makes
    and stores no key. A statement is about these weights, questions and settings, and names what it does not cover.

    Examples
    --------
    >>> import lethe
    >>> stated = lethe.attest("data", model="mine", fail_above=0.9)
    >>> stated.word, len(stated.statement()["subject"])
    ('bounded', 2)
    """
    root = Path(run)
    check(0 <= fail_above < 1, "fail_above", fail_above, "a number of at least 0 and below 1")
    place = results_of(root, model)
    results = table.read(root, [model])
    reasons = reasons_of(results.model(model))
    if reasons:
        raise BadInput(f"lethe attest: nothing is claimed of {model}. {' '.join(reasons)}")
    rows = results.rows(model)
    drawn = read_artifact(root / "generations" / model / "about.json")
    scorer = results.scorers(model).get("leak")
    of: Listing | Served
    trees = None
    if drawn.get("served"):
        of = Served.of(drawn["served"], secrets.token_hex(32))
    else:
        of_model = Path(folder) if folder is not None else _folder_of(root, model)
        of = _listing(of_model)
        _check_drawn(drawn, model, of_model)
        trees = _trees(certificates_of(results, model), drawn, str(scorer))
    claims = statements.claims_of(rows, fail_above, trees)
    generations = root / "generations" / model / "forget.parquet"
    scores = root / "scores" / model / "forget.parquet"
    first = {str(row.item): row.facts["n"] for row in statements.leak_rows(rows)}
    absent = [name for name in read_items("forget", root) if name not in first]
    if absent:
        problem = f"question {absent[0]!r} has no counts of leaking answers"
        raise BadInput(f"lethe attest: {problem}. Leave it out of the forget set.")
    n_of_question = dict(first)
    at_any_time: dict[str, Result] = {}
    if any(claim.basis == statements.ANYTIME for claim in claims):
        at_any_time = statements.counts_of_basis(rows, statements.ANYTIME)
        n_of_question = {name: at_any_time[name].facts["n"] for name in first}
    engine = engine_of(drawn)
    draws = draws_of(generations, scores, str(scorer), n_of_question, engine.get("seed"))
    draws = draws.with_first(first)
    counted_rows = statements.leak_rows(rows)
    counted_rows += [row for name, row in at_any_time.items() if name in first]
    _check_counted(counted_rows, draws, scores)
    data = root / "dataset" / "forget.jsonl"
    measured = datetime.fromtimestamp(place.stat().st_mtime, UTC)
    not_covered = list(NOT_COVERED)
    if isinstance(of, Served):
        not_covered.append("what the server answers at other times")
    signing = _signing_key(key, public_key, password_env)
    about = About(
        evaluator=evaluator or (UNNAMED if signing is None else f"urn:lethe:key:{signing.id}"),
        assurance=assurance,
        evaluated_at=measured,
        model=model,
        of=of,
        data=data.name,
        data_sha256=hashlib.sha256(data.read_bytes()).hexdigest(),
        access="answers" if isinstance(of, Served) else "weights",
        scorer=str(scorer),
        engine=engine,
        not_covered=[*not_covered, f"answers beyond {drawn['max_new_tokens']} tokens"],
        version=__version__,
    )
    return Attestation(tuple(claims), about, draws, signing)


def _signing_key(
    key: KeyOrAddress, public_key: Place | None, password_env: str | None
) -> SigningKey | None:
    if key is None:
        return None
    public = None if public_key is None else Path(public_key)
    return SigningKey(str(key), public, password_env)


def _check_counted(rows: Sequence[Result], draws: Draws, scores: Path) -> None:
    """Refuse rows that count other leaks than the scores have."""
    for row in rows:
        facts = row.facts
        counted = draws.by_id[str(row.item)].leaks(facts["n"])
        if counted != facts["leaks"] + facts["missing"]:
            problem = f"has other leaks of question {row.item!r} than the run's bound counts"
            raise BadFile(scores, problem, "Run again from the stage score on, truncated: counts.")


def _trees(
    trees: Certificates | None, drawn: Mapping[str, Json], scorer: str
) -> Certificates | None:
    """The answer trees if they are of the model as it was drawn, by the same scorer; else None."""
    if trees is None or trees.how.note or trees.refused or trees.how.leak != scorer:
        return None
    law = [getattr(trees.how, name) for name in LAW]
    is_drawn_so = law == [drawn.get(name) for name in LAW]
    of = trees.of
    if not is_drawn_so or of is None or of != Version(drawn.get("model"), drawn.get("questions")):
        return None
    return trees


def engine_of(drawn: Mapping[str, Json]) -> dict[str, Json]:
    """How the answers were drawn, by the record beside them: real numbers as decimal strings, as the statement has them."""
    engine: dict[str, Json] = {"name": drawn["engine"]}
    served = drawn.get("served")
    has_seed = not served or served["seeded"]
    for name in (*(ENGINE if has_seed else ()), *DRAWING):
        value = drawn.get(name)
        if value is not None:
            engine[name] = str(value) if isinstance(value, float) else value
    return engine


def _listing(folder: Path) -> Listing:
    from lethe.models.listing import listing_of

    return listing_of(folder)


def _check_drawn(drawn: Mapping[str, Json], model: str, folder: Path) -> None:
    """Refuse a folder other than the one that the answers were drawn of, or that was trained since."""
    from lethe.models.checkpoints import content

    if "model" not in drawn:
        problem = f"the run does not record which weights the answers of {model} are of"
        raise BadInput(f"lethe attest: {problem}. Run again on a model folder, from sample on.")
    if drawn["model"] != content(folder):
        remedy = "Name that folder with --folder, or run again from the stage sample on."
        raise BadFile(folder, f"is not the model that the answers of {model} are of", remedy)


def _folder_of(root: Path, model: str) -> Path:
    """The folder of a model by the record of `lethe eval`, or by the params.yaml beside the run."""
    remedy = "Name the folder of the model with --folder."
    evaluated, params = root / "evaluated.json", root.resolve().parent / "params.yaml"
    if evaluated.is_file():
        return Path(read_artifact(evaluated)["model"])
    if not params.is_file():
        raise BadFile(root, f"does not say where the weights of {model} are", remedy)
    models = read_yaml(params).get("models")
    entry = models.get(model) if isinstance(models, dict) else None
    if not isinstance(entry, dict) or "path" not in entry:
        raise BadFile(params, f"has no path of the model {model}", remedy)
    return params.parent / entry["path"]


@dataclass(frozen=True, repr=False)
class Verification(TableWithSentences):
    """The result of `verify` on a statement: what was ``checked`` and agrees, and what was ``unchecked``, in sentences."""

    statement: Mapping[str, Json]
    checked: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def claims(self) -> list[Mapping[str, Json]]:
        claims: list[Mapping[str, Json]] = self.statement["predicate"]["claims"]
        return claims

    def to_frame(self) -> pd.DataFrame:
        """One row per claim."""
        rows = []
        for claim in self.claims:
            rows.append({key: value for key, value in claim.items() if key != "lethe"})
        return frame(rows)

    def sentences(self) -> list[str]:
        lines = []
        for claim in self.claims:
            added = claim["lethe"]
            relation = "at most" if added["side"] == "upper" else "at least"
            lines.append(
                f"Stated: a question's answer leaks with probability {relation} {added['bound']} on {added['covers']}, with "
                f"probability {added['confidence']}, assuming {added['assumes']} ({added['method']}); the word is "
                f"{added['word']} beside the threshold {claim['threshold']}."
            )
        return [*lines, *self.checked, *self.unchecked]

    def as_json(self) -> dict[str, object]:
        return {
            "checked": list(self.checked),
            "unchecked": list(self.unchecked),
            "statement": self.statement,
        }

    def views(self) -> list[View]:
        return [View("", notes=self.sentences())]


def is_attested(file: Path) -> bool:
    """Whether a file is an envelope or a statement, not a certificate."""
    if not file.is_file():
        return False
    value = read_json(file)
    return envelopes.is_envelope(value) or statements.is_statement(value)


def verified(
    file: Path, key: Place | None, model: Place | None, data: Place | None
) -> Verification:
    """Check a statement or its envelope: the signature, the subject, the data, the draws beside it, and each bound from its
    witness.

    Raises `BadFile` for the first of these that does not agree; what needs an argument that is absent stays unchecked.
    """
    checked, unchecked = [], []
    if envelopes.is_envelope(read_json(file)):
        envelope = envelopes.read_envelope(file)
        statement = _payload(envelope, file)
        if key is None:
            unchecked.append("Not checked: the signature (--key names the public key).")
        else:
            _check_signature(envelope, Path(key), file)
            checked.append(f"The signature is that of {key}.")
    else:
        statement = statements.read_statement(file)
        if key is not None:
            raise BadFile(
                file, "is an unsigned statement", "Leave --key out, or name the envelope."
            )
        unchecked.append("Not checked: who made this statement, which is unsigned.")

    absent = _absent(statement)
    if absent:
        unchecked.append(f"Not stated: {', '.join(absent)}.")
    _check_identity(statement, file)
    _check_bounds(statement, file)
    checked.append("Each bound follows from its witness, by exact arithmetic.")
    draws = _draws_beside(statement, file)
    if draws is None:
        unchecked.append("Not checked: the draws, whose file is not beside the statement.")
    else:
        _check_counts(statement, draws, file)
        count = plural(draws.size, "draw")
        checked.append(
            f"The {count} of {plural(len(draws.questions), 'question')} have these counts."
        )
    if model is None:
        names = "the record beside it" if _commitment(statement) else "its folder"
        unchecked.append(f"Not checked: the model (--model names {names}).")
    else:
        _check_model(statement, Path(model), file)
        checked.append(f"The model in {model} is the subject.")
    if data is None:
        unchecked.append("Not checked: the questions (--data names their file).")
    else:
        _check_data(statement, Path(data), draws, file)
        checked.append(f"The questions are those of {data}.")
    return Verification(statement, tuple(checked), tuple(unchecked))


def _absent(statement: Mapping[str, Json]) -> list[str]:
    """The keys of `STATED` that the statement lacks, each with its place below the predicate."""
    absent = []
    for place in STATED:
        value = statement["predicate"]
        if place.startswith("model.") and _commitment(statement) is not None:
            continue
        value = _inside(value, *place.split("."))
        if value in (None, "", [], {}):
            absent.append(place)
    return absent


def _check_identity(statement: Mapping[str, Json], file: Path) -> None:
    """Refuse digests that nothing here compares, by which another tool could match another model or other questions."""
    predicate = statement["predicate"]
    subjects = statement.get("subject")
    for subject in subjects if isinstance(subjects, list) else []:
        digest = _inside(subject, "digest")
        if not isinstance(digest, dict) or set(digest) != {"sha256"}:
            raise BadFile(file, "has a subject with another digest than one SHA-256")
    for name in ("model", "dataset"):
        if name in predicate and _inside(predicate, "commitments", name) is not None:
            raise BadFile(file, f"has both {name} and commitments.{name}")
    version = _inside(predicate, "suite", "version")
    sha256 = _inside(predicate, "dataset", "digest", "sha256")
    if version is not None and sha256 is not None and version != str(sha256)[:12]:
        raise BadFile(file, "names another version of its suite than the digest of its questions")
    access = _inside(predicate, "lethe", "access")
    needed = "weights" if _commitment(statement) is None else "answers"
    if access not in (None, needed):
        raise BadFile(
            file, f"states the access {shortened(access)}, and its subject takes {needed}"
        )


def _payload(envelope: Envelope, file: Path) -> dict[str, Json]:
    try:
        value = json.loads(envelope.payload, object_pairs_hook=without_doubles)
    except (ValueError, RecursionError) as error:
        raise BadFile(file, f"holds a payload that is no JSON ({error})") from None
    return statements.checked(value, file)


def _check_signature(envelope: Envelope, key: Path, file: Path) -> None:
    if not is_signed_by(envelope, key):
        problem = f"has no signature of {key} on its statement"
        remedy = "The statement was changed after it was signed, or another key signed it."
        raise BadFile(file, problem, remedy)


def _check_bounds(statement: Mapping[str, Json], file: Path) -> None:
    try:
        found = checker.check_statement(statement)
    except checker.BROKEN as error:
        raise BadFile(file, f"is a broken statement ({error})") from None
    for number, result in enumerate(found, start=1):
        if result != checker.VERIFIED:
            raise BadFile(file, f"claim {number} is {result}")
    for claim in statement["predicate"]["claims"]:
        _check_estimate(claim["lethe"], file)


def _check_estimate(added: Mapping[str, Json], file: Path) -> None:
    """Refuse an estimate that is no decimal string, or that lies beyond its bound."""
    estimate = added.get("estimate")
    if "estimate" not in added:
        return
    if not isinstance(estimate, str) or not checker.DECIMAL.fullmatch(estimate):
        raise BadFile(file, f"has the estimate {shortened(estimate)}, which is no decimal string")
    value, end = Decimal(estimate), Decimal(added["bound"])
    is_beyond = value > end if added["side"] == "upper" else value < end
    if is_beyond:
        raise BadFile(file, f"has the estimate {estimate}, beyond its bound {added['bound']}")


def _draws_beside(statement: Mapping[str, Json], file: Path) -> Draws | None:
    """The draws of the file that the statement names, if it lies beside the statement and has the stated digest."""
    try:
        (evidence,) = statement["predicate"]["evidence"]
        name, sha256 = str(evidence["name"]), evidence["digest"]["sha256"]
    except (KeyError, TypeError, ValueError):
        raise BadFile(file, "names no file of draws") from None
    path = file.parent / Path(name).name
    try:
        is_there = path.is_file()
    except OSError:  # a name that no file can have
        is_there = False
    if not is_there:
        return None
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise BadFile(path, f"is not the file that {file.name} names: its SHA-256 differs")
    draws = read_draws(path)
    stated = [_inside(evidence, "annotations", name) for name in ("root", "size")]
    if stated not in ([draws.root, draws.size], [None, None]):
        raise BadFile(file, f"states another root or size than {path.name} has")
    return draws


def _check_counts(statement: Mapping[str, Json], draws: Draws, file: Path) -> None:
    """Refuse an upper end that a question of the draws exceeds, and a lower end whose counts no question has."""
    if statement["predicate"].get("sampleSize") != draws.size:
        raise BadFile(file, "states another number of draws than the file of its draws has")
    seed = _inside(statement["predicate"], "lethe", "engine", "seed")
    if seed not in (None, draws.seed):
        raise BadFile(file, "states another seed than the file of its draws has")
    for claim in statement["predicate"]["claims"]:
        added = claim["lethe"]
        if added["basis"] == statements.TREE:  # its witness is no count of these draws
            _check_explored(added, draws, file)
            continue
        is_at_first = added["basis"] == statements.SAMPLED
        counts = set()
        for question in draws.questions:
            n = question.at_first if is_at_first else question.n
            counts.add((question.leaks(n), n))
        witness = added["witness"]
        if added["side"] == "lower":
            largest = max((leaks for leaks, n in counts if n == witness["n"]), default=-1)
            if witness["count"] > largest:
                raise BadFile(file, "states more leaks than any question of its draws has")
            if witness.get("questions", 1) < len(draws.questions):
                raise BadFile(file, "shares the level of a lower end by too few questions")
            continue
        if (witness["count"], witness["n"]) not in counts:
            raise BadFile(file, "states counts that no question of its draws has")
        _check_others(added, counts, file)


def _check_explored(added: Mapping[str, Json], draws: Draws, file: Path) -> None:
    """Refuse the end of an answer tree that the counts of the draws contradict, all but certainly."""
    end = checker.Fraction(added["bound"])
    level = CONTRADICTED / len(draws.questions)
    contrary: Side = "lower" if added["side"] == "upper" else "upper"
    beyond = []
    for question in draws.questions:
        n = question.at_first
        counted = {"count": question.leaks(n), "n": n}
        beyond.append(checker.end_holds(contrary, statements.SAMPLED, counted, end, level))
    if any(beyond) if contrary == "lower" else all(beyond):
        raise BadFile(file, f"has an {added['side']} end of answer trees that its draws contradict")


def _check_others(added: Mapping[str, Json], counts: set[tuple[int, int]], file: Path) -> None:
    """Refuse the upper end of the worst question where it is too tight for another one."""
    end, alpha = checker.Fraction(added["bound"]), checker.Fraction(added["alpha"])
    most_leaks: dict[int, int] = {}
    for leaks, n in counts:
        most_leaks[n] = max(leaks, most_leaks.get(n, 0))
    for n, leaks in most_leaks.items():
        stated: dict[str, object] = {"count": leaks, "n": n}
        if not checker.end_holds("upper", added["basis"], stated, end, alpha):
            problem = f"has a bound that a question with {leaks} of {n} leaks exceeds"
            raise BadFile(file, problem)


def _inside(value: Json, *keys: str) -> Json:
    """The value below some keys of JSON objects; None where there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _commitment(statement: Mapping[str, Json]) -> str | None:
    """The SHA-256 of the record of a served model; None of a model with weights, and of what is no such digest."""
    value = _inside(statement["predicate"], "commitments", "model", "value")
    algorithm = _inside(statement["predicate"], "commitments", "model", "alg")
    if algorithm != "sha256" or not isinstance(value, str) or not SHA256.fullmatch(value):
        return None
    return value


def _check_model(statement: Mapping[str, Json], model: Path, file: Path) -> None:
    from lethe.models.listing import listing_of

    subjects = statement.get("subject")
    digests = []
    if isinstance(subjects, list):
        digests = [_inside(subject, "digest", "sha256") for subject in subjects]
    commitment = _commitment(statement)
    if commitment is not None:
        if not model.is_file():
            remedy = "Name the record of the server, FILE.served.json, which its author has."
            raise BadFile(model, "is no file, and the statement is about a served model", remedy)
        of_record = hashlib.sha256(model.read_bytes()).hexdigest()
        if digests != [of_record] or commitment != of_record or "model" in statement["predicate"]:
            raise BadFile(file, f"is about another model than {model}: its SHA-256 differs")
        return
    listing = listing_of(model)
    stated = _inside(statement["predicate"], "model", "digest", "dirHash")
    if listing.digest not in digests or listing.digest != stated:
        raise BadFile(file, f"is about another model than {model}: the digest of its files differs")
    of_model = [listing.digest]
    if listing.weights is not None:
        of_model.append(listing.weights[1])
    if not all(digest in of_model for digest in digests):
        raise BadFile(file, f"has a subject that is not {model}: subjects are matched by digest")
    files = _inside(statement["predicate"], "model", "annotations", "files")
    if files not in (None, sorted(listing.sha256_of_file, key=str.encode)):
        raise BadFile(file, f"lists other files than {model} has")
    base = _inside(statement["predicate"], "lethe", "base", "dirHash")
    if base not in (None, listing.base and listing.base.digest):
        raise BadFile(file, f"names another base model than {model} has")


def _check_data(statement: Mapping[str, Json], data: Path, draws: Draws | None, file: Path) -> None:
    """Refuse other questions, and draws that leave a question out; a run keeps the rows of a user's file in its own form,
    whose digest is stated.
    """
    from lethe.data.rows import read_rows

    stated = _inside(statement["predicate"], "dataset", "digest", "sha256")
    rows = read_rows(data)
    contents = (data.read_bytes(), jsonl_text(rows).encode())
    if stated not in [hashlib.sha256(content).hexdigest() for content in contents]:
        raise BadFile(file, f"is about other questions than {data}")
    if draws is None:
        return
    absent = [row["id"] for row in rows if row["id"] not in draws.by_id]
    if absent:
        raise BadFile(file, f"leaves question {absent[0]!r} of {data} out of its draws")
