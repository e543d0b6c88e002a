"""The word on a trace of each model under test, from the ranks of all models; a part of stage `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.twins import REFERENCE, Twins
from lethe.data.drawing import CONTROL_ALPHA, model_free_controls, spans_of
from lethe.data.sealed import RECORD, open_seal, order_key, read_key, read_record
from lethe.data.secrets import Secret, questions_of, secrets_of
from lethe.errors import BadFile
from lethe.io.artifacts import SAMPLE, Row, first_rows, read_split
from lethe.io.files import read_artifact
from lethe.io.tables import read_table
from lethe.results.table import Numbers, Result, Results
from lethe.results.trace import (
    GIVEN,
    NATIVE,
    UNREAD,
    UNTOLD,
    ByScore,
    Control,
    Design,
    Trace,
    by_author,
    by_question,
    lift_of,
    no_word_rows,
    refusal_of,
    stated_by,
    twin_test_of,
    word_rows,
)
from lethe.scoring.keyword import keyword_form, occurs
from lethe.statistics.streams import stream
from lethe.statistics.twins import TwinTest, ranks_of, twin_test

if TYPE_CHECKING:
    import pandas as pd

OPENED = ("forget", "retain")  # splits whose secrets a sealed draw may be about


@dataclass(frozen=True)
class WordSettings:
    """What all models share.

    Attributes
    ----------
    settings
        The section ``twins`` of params.yaml.
    secrets
        The drawn secrets of the forget set.
    design
        How their true candidates were drawn.
    alpha
        The probability that the word "trace" is wrong of any model.
    models
        The number of models that share it.
    """

    settings: Twins
    secrets: Sequence[Secret]
    design: Design
    alpha: float
    models: int


def words(
    results: Results,
    subjects: Sequence[str],
    settings: Twins | None,
    alpha: float,
    models: int,
    root: Path,
) -> list[Result]:
    """Return the rows of the word on each model under test; none where the forget set has no drawn secrets.

    Parameters
    ----------
    results
        The rows of all models, with the ranks that the stage `twins` wrote.
    subjects
        The models under test.
    settings
        The section ``twins`` of params.yaml.
    alpha
        The probability that the word "trace" is wrong of any model.
    models
        The number of models that share alpha.
    root
        The folder of all artifacts.

    Raises
    ------
    BadFile
        If the sealed key does not open the record beside it.
    """
    if settings is None:
        return []
    secrets = secrets_of(read_split("forget", root / "dataset"))
    if not secrets:
        return []
    shared = WordSettings(settings, secrets, design_of(settings, secrets, root), alpha, models)
    control = control_of(results, settings)
    refusal_of_all = _obvious(shared, root)
    if refusal_of_all is None and settings.control is not None and control is None:
        refusal_of_all = f"the control {settings.control} was not tested; twins.control names another model, or null"
    rejecting = _rejecting(results, subjects, settings)

    rows: list[Result] = []
    for name in subjects:
        if name == settings.control:
            continue
        if refusal_of_all is not None:
            rows += no_word_rows(name, refusal_of_all, of_all=True)
            continue

        # A server that states no likelihood is tested by the candidates in its answers.
        refusal = refusal_of(results.model(name))
        counts = None
        if refusal == UNREAD:
            counts = counts_of(secrets, root / "generations" / name / "forget.parquet")
        if counts is not None:
            by_counts = _counted(counts, shared, control)
            by_counts = replace(by_counts, stated_by=stated_by(results.model(name)))
            counted = _with(rejecting, by_counts)
            rows += by_question(counted.rows(name), questions_of(secrets))
            continue

        if refusal is not None:
            rows += no_word_rows(name, refusal)
            continue
        trace = trace_of_model(name, results, shared, control, root)
        if trace is not None:
            rows += word_rows(name, _with(rejecting, trace))
    return rows


def _rejecting(results: Results, subjects: Sequence[str], settings: Twins) -> list[Control]:
    """Return the tests on held-out secrets that reject, of all models: they refute the generator, which no model changes."""
    names = dict.fromkeys(subjects)
    if settings.control is not None:
        names[settings.control] = None
    rejecting: list[Control] = []
    for name in names:
        for control in _held_out(name, results.model(name), settings):
            if not control.holds:
                rejecting.append(control)
    return rejecting


def _with(rejecting: Sequence[Control], trace: Trace) -> Trace:
    """Return the trace with the controls of other models that reject, which take its word too."""
    more = [control for control in rejecting if control not in trace.controls]
    return replace(trace, controls=(*trace.controls, *more))


def counts_of(secrets: Sequence[Secret], answers: Path) -> dict[str, np.ndarray] | None:
    """Return (k,) how many sampled answers state each candidate, by the secret; None where no answer was sampled.

    An answer states a candidate that it holds as whole words, in the words in which the candidates of its row differ. Only
    the answers count that came whatever happened: a rule that draws on until the true candidate came would favour it.
    """
    if not answers.is_file():
        return None
    drawn = first_rows(read_table(answers, ("prompt_id", SAMPLE, "text")), answers)
    texts = drawn[drawn[SAMPLE] >= 0].groupby("prompt_id", sort=False)["text"]
    texts_of_row = {str(row): group.tolist() for row, group in texts}
    counts = {}
    for secret in secrets:
        of_secret = np.zeros(len(secret.candidates))
        for row, candidates in zip(secret.rows, secret.answers, strict=True):
            spans = [(keyword_form(span),) for span in spans_of(candidates)]
            for text in texts_of_row.get(row["id"], ()):
                of_secret += [occurs(text, span, "word") for span in spans]
        counts[secret.name] = of_secret
    return counts


def _counted(
    counts: Mapping[str, np.ndarray], shared: WordSettings, control: Control | None
) -> Trace:
    """The trace of a served model by the counts of its candidates."""
    names = tuple(secret.name for secret in shared.secrets)
    test = _test_of(counts, shared.secrets, order_key(shared.settings))
    return Trace(
        test,
        names,
        shared.alpha,
        models=shared.models,
        settings=shared.settings.model_copy(update={"scores": ()}),
        controls=(control,) if control else (),
        design=shared.design,
        basis="sampled",
    )


def _obvious(shared: WordSettings, root: Path) -> str | None:
    """Why no model has a word where a score that needs no model tells true candidates from twins; else None."""
    if shared.design.kind == "native":
        return None
    controls = model_free_controls(shared.secrets, _rows(root))
    refuted = [control.score for control in controls if control.holm <= CONTROL_ALPHA]
    if not refuted:
        return None
    return f"the true candidates stand out by {', '.join(refuted)}, which needs no model"


def control_of(results: Results, settings: Twins) -> Control | None:
    """Return the test of the model that cannot know the draws; None where there is none."""
    if settings.control is None:
        return None
    test = twin_test_of(results.model(settings.control))
    if test is None:
        return None
    return Control(settings.control, test.p, settings.control_alpha, test.direction)


def trace_of_model(
    name: str, results: Results, shared: WordSettings, control: Control | None, root: Path
) -> Trace | None:
    """Return the trace of a model from its ranks and scores; None where it has no ranks."""
    numbers = results.model(name)
    test = twin_test_of(numbers)
    if test is None:
        return None
    names = tuple(numbers.facts("trace_p", "given answers")["secrets"])

    # The smallest lift of the true candidates that the test would find.
    lift = None
    scores = _scores(root / "twins" / f"{name}.parquet")
    if scores is not None:
        rng = np.random.default_rng(stream(0, "lifts of the twin test", name))
        level = shared.alpha / shared.models / shared.settings.n_scores
        lift = lift_of(scores, level, rng, shared.settings.power)

    # Of a served model no further score is computed, and who answered is known from its answers.
    settings = shared.settings
    design = shared.design
    server = stated_by(numbers)
    answered_by: tuple[str, ...] = ()
    if server is not None:
        settings = settings.model_copy(update={"scores": ()})
        design = replace(design, assumes=f"{design.assumes}; {UNTOLD}")
        about = root / "generations" / name / "about.json"
        if about.is_file():
            answered_by = tuple(read_artifact(about).get("served", {}).get("names", ()))

    author_of_secret = {secret.name: secret.author for secret in shared.secrets}
    known = [author for author in map(author_of_secret.__getitem__, names) if author]
    authors = by_author(test, known) if len(known) == len(names) else ()
    return Trace(
        test,
        names,
        shared.alpha,
        models=shared.models,
        settings=settings,
        controls=(*controls_of(control, shared, root), *_held_out(name, numbers, shared.settings)),
        lift=lift,
        authors=authors,
        design=design,
        by_scores=tests_by_scores(name, settings, shared.secrets, root),
        stated_by=server,
        answered_by=answered_by,
    )


def controls_of(control: Control | None, shared: WordSettings, root: Path) -> tuple[Control, ...]:
    """Return the control's test by the score of the whole answer and by each further one: any that rejects takes the word."""
    if control is None:
        return ()
    settings = shared.settings
    of_one_model = [score for score in settings.scores if score != REFERENCE]
    alone = settings.model_copy(update={"scores": tuple(of_one_model)})
    controls = [control]
    for test in tests_by_scores(control.model, alone, shared.secrets, root):
        model = f"{control.model} by {test.score}"
        controls.append(Control(model, test.p, settings.control_alpha, test.direction))
    return tuple(controls)


def _held_out(name: str, numbers: Numbers, settings: Twins) -> list[Control]:
    """The model's own test on secrets that no model was trained on, where there are such: a rejection takes its word."""
    row = numbers.row("twin_heldout_p", GIVEN)
    if row is None or row.estimate is None:
        return []
    model = f"{name} on held-out secrets"
    return [Control(model, row.estimate, settings.control_alpha, row.facts["direction"])]


def tests_by_scores(
    name: str, settings: Twins, secrets: Sequence[Secret], root: Path
) -> tuple[ByScore, ...]:
    """Return the test of a model by each further declared score, from the tables of the stage `twins`.

    *reference* is the score of the whole answer less that of the control, which cannot know the draws: so the difference
    depends on them through the model alone. A model that had learned the secrets would break the test.
    """
    by_scores = []
    table_of = _by_secret(root, name)
    for score in settings.scores:
        if score == REFERENCE:
            of_control = _by_secret(root, str(settings.control))
            values = _differences(table_of, of_control)
        else:
            values = {secret: group[score].to_numpy() for secret, group in table_of.items()}
        test = _test_of(values, secrets, order_key(settings))
        by_scores.append(ByScore(score, test.p, test.log_p, test.direction))
    return tuple(by_scores)


def _by_secret(root: Path, name: str) -> dict[str, pd.DataFrame]:
    """The candidates of each secret under a model, the true one first."""
    table_of = read_table(root / "twins" / f"{name}.parquet", ("secret", "log_prob"))
    return {str(secret): group for secret, group in table_of.groupby("secret", sort=False)}


def _differences(
    of_model: Mapping[str, pd.DataFrame], of_control: Mapping[str, pd.DataFrame]
) -> dict[str, np.ndarray]:
    """(k,) the difference of both models' scores for each secret that both could read."""
    differences = {}
    for secret, group in of_model.items():
        if secret in of_control:
            log_probs = of_control[secret]["log_prob"].to_numpy()
            differences[secret] = group["log_prob"].to_numpy() - log_probs
    return differences


def _test_of(values: Mapping[str, np.ndarray], secrets: Sequence[Secret], key: bytes) -> TwinTest:
    """The twin test of the secrets that have ``values`` (k,), the true candidate's first; ``key`` orders ties."""
    ranks = []
    sizes = []
    for secret in secrets:
        if secret.name in values:
            scores = values[secret.name]
            ranks.append(int(ranks_of([scores], [0], [secret.order(key)])[0]))
            sizes.append(len(scores))
    return twin_test(ranks, sizes)


def _scores(path: Path) -> np.ndarray | None:
    """(m, k) the scores in nats; None where secrets differ in their number of candidates, or a score is infinite."""
    table = read_table(path, ("secret", "log_prob"))
    of_secret = [group.to_numpy() for _, group in table.groupby("secret", sort=False)["log_prob"]]
    sizes = {len(values) for values in of_secret}
    if len(sizes) != 1 or not np.isfinite(table["log_prob"]).all():
        return None
    return np.stack(of_secret)


def design_of(settings: Twins, secrets: Sequence[Secret], root: Path) -> Design:
    """Return how the true candidates were drawn.

    Raises
    ------
    BadFile
        If the sealed key does not open the record beside it: the test would assume a draw that did not take place.
    """
    about = read_artifact(root / "dataset" / "about.json")
    if about.get("generated_twins"):
        return Design("native", NATIVE)
    if settings.key is None:
        return Design()
    path = Path(settings.key)
    record = read_record(path.parent / RECORD)
    opened = open_seal(record, secrets_of(_rows(root)), read_key(path))
    if opened.problems:
        remedy = "Restore the rows, the record and the key that lethe twins wrote."
        raise BadFile(path, f"does not open the seal: {'; '.join(opened.problems)}", remedy)
    return Design(record.design, record.assumes, record.commitment)


def _rows(root: Path) -> list[Row]:
    """The rows of the splits whose secrets a draw may be about."""
    rows: list[Row] = []
    for split in OPENED:
        if (root / "dataset" / f"{split}.jsonl").is_file():
            rows += read_split(split, root / "dataset")
    return rows
