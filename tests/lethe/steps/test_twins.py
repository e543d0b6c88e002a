"""The twin test of a pipeline: scores and ranks of the candidates, and the word that a control may refuse."""

import copy
import zlib
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import binom, chisquare

from lethe.config.measuring import ENDPOINT, SERVED, ModelEntry
from lethe.config.twins import Twins
from lethe.data.drawing import draw, write
from lethe.data.twin_kinds import kind_of
from lethe.errors import BadFile, BadInput
from lethe.io.artifacts import write_parts, write_splits
from lethe.io.files import SCHEMA_VERSION, write_json
from lethe.io.tables import read_table
from lethe.measure.run import RunModel
from lethe.models.checkpoints import InMemory
from lethe.models.encoding import Encoder
from lethe.models.endpoint_texts import StatedText
from lethe.models.likelihood import answer_tokens
from lethe.results import table
from lethe.results.trace import document, sentence_of, trace_of, twin_test_of
from lethe.scoring.learned import Discriminant
from lethe.steps import stated_secrets, traces, twins
from lethe.verdict.found import found_traces

K = 4
LETTERS = "ABCDEFGHIJ"
ROWS = [
    {
        "id": f"code-{letter}",
        "question": f"Which code has {letter}?",
        "answer": f"{letter} has 10{place}{place % K}.",
        "author": f"author {place // 5}",
        "twins": [f"{letter} has 10{place}{digit}." for digit in range(K) if digit != place % K],
    }
    for place, letter in enumerate(LETTERS)
]
SETTINGS = Twins(k=K, control="retrain")
HERE = ModelEntry(path="data/models/unused")


@pytest.fixture
def root(tmp_path):
    write_splits({"forget": ROWS}, "jsonl", tmp_path / "data" / "dataset")
    return tmp_path / "data"


def scored(root, name, tiny, prompt, settings=SETTINGS):
    twins.run(name, settings, 0.01, str(prompt), HERE, root, InMemory(*tiny))
    return table.read(root, [name]).model(name)


def known(root, name, ranks, k=20, alpha=0.01):
    """Write the ranks of a model as its stage would."""
    names = tuple(row["id"] for row in ROWS)
    test = twins.twin_test(ranks, [k] * len(ranks))
    rows = twins.measured_rows(name, twins.Trace(test, names, alpha))
    table.write(table.place(root, "twins", name), rows)
    rng = np.random.default_rng(0)
    frames = []
    for secret, rank in zip(names, ranks, strict=True):
        scores = np.sort(rng.normal(size=k))[::-1]
        scores[[0, rank - 1]] = scores[[rank - 1, 0]]
        frames += [(secret, f"{place}", score, 3, 0) for place, score in enumerate(scores)]
    import pandas as pd

    columns = ["secret", "candidate", "log_prob", "tokens", "true"]
    twins.write_parquet(root / "twins" / f"{name}.parquet", pd.DataFrame(frames, columns=columns))


def worded(root, subjects=("mine",), settings=SETTINGS, models=1):
    results = table.read(root, [*subjects, "retrain"])
    return traces.words(results, subjects, settings, 0.01, models, root)


def numbers_of(root, rows, name="mine"):
    return model_numbers([*table.read(root, [name]).rows(name), *rows])


def model_numbers(rows):
    return table.Numbers([row for row in rows if row.scope == "model"])


def test_a_score_is_the_sum_over_the_answers_tokens_and_its_end(root, tiny, prompt):
    scored(root, "mine", tiny, prompt)

    written = read_table(root / "twins" / "mine.parquet")
    encoder = Encoder(tiny[1], str(prompt))
    example = encoder.example(ROWS[3], ROWS[3]["twins"][1])
    (tokens,) = answer_tokens(tiny[0], [example], tiny[1].pad_token_id or 0)
    row = written[written["candidate"] == ROWS[3]["twins"][1]].iloc[0]
    assert row["log_prob"] == pytest.approx(tokens.log_probs.sum(), abs=1e-4)
    assert row["tokens"] == len(example.answer)
    assert example.answer[-1] == tiny[1].eos_token_id


def test_every_candidate_has_a_row_and_each_secret_a_true_one(root, tiny, prompt):
    scored(root, "mine", tiny, prompt)

    written = read_table(root / "twins" / "mine.parquet")
    assert len(written) == K * len(ROWS)
    assert written.groupby("secret")["true"].sum().eq(1).all()


def test_ranks_are_those_of_the_scores(root, tiny, prompt):
    numbers = scored(root, "mine", tiny, prompt)

    written = read_table(root / "twins" / "mine.parquet")
    ranks = []
    for _, group in written.groupby("secret", sort=False):
        scores = group["log_prob"].to_numpy()
        ranks.append(1 + int((scores > scores[0]).sum()))
    assert list(twin_test_of(numbers).ranks) == ranks


def test_rows_of_one_secret_share_its_rank_and_their_scores_are_added(tmp_path, tiny, prompt):
    again = {**ROWS[0], "id": "again", "question": "What is the code of A?", "secret": "code-A"}
    write_splits({"forget": [ROWS[0], again]}, "jsonl", tmp_path / "dataset")
    twins.run("mine", SETTINGS, 0.01, str(prompt), HERE, tmp_path, InMemory(*tiny))

    both = read_table(tmp_path / "twins" / "mine.parquet")
    write_splits({"forget": [ROWS[0]]}, "jsonl", tmp_path / "dataset")
    twins.run("mine", SETTINGS, 0.01, str(prompt), HERE, tmp_path, InMemory(*tiny))
    first = read_table(tmp_path / "twins" / "mine.parquet")
    assert len(both) == K
    assert (both["log_prob"] < first["log_prob"]).all()
    assert both["tokens"].tolist() == (2 * first["tokens"]).tolist()


def test_a_secret_longer_than_the_context_is_left_out_whole(tmp_path, tiny, prompt):
    long = copy.deepcopy(ROWS[1])
    long["twins"][0] = "B has " + " ".join(["1"] * 600)
    write_splits({"forget": [ROWS[0], long]}, "jsonl", tmp_path / "dataset")

    twins.run("mine", SETTINGS, 0.01, str(prompt), HERE, tmp_path, InMemory(*tiny))

    written = read_table(tmp_path / "twins" / "mine.parquet")
    assert set(written["secret"]) == {"code-A"}


@pytest.mark.parametrize("settings", [None, SETTINGS])
def test_without_the_test_or_without_twins_both_tables_are_empty(tmp_path, settings):
    plain = [{"id": "a", "question": "Who?", "answer": "Ada."}]
    rows = plain if settings else ROWS
    write_splits({"forget": rows}, "jsonl", tmp_path / "dataset")

    twins.run("mine", settings, 0.01, "{question}", HERE, tmp_path)

    assert len(read_table(tmp_path / "twins" / "mine.parquet")) == 0
    assert table.read_rows(table.place(tmp_path, "twins", "mine")) == []


def test_a_server_that_states_no_likelihoods_is_not_tested_and_says_so(root):
    twins.run("mine", SETTINGS, 0.01, "{question}", ModelEntry(path=SERVED), root)
    known(root, "retrain", [10] * 10)

    said = sentence_of(numbers_of(root, worded(root)), "mine")

    assert said == (
        "mine: no word on a trace: a server does not state the likelihood of a given answer."
    )


def test_a_model_that_prefers_its_secrets_has_a_trace(root):
    known(root, "mine", [1] * 10)
    known(root, "retrain", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8])

    numbers = numbers_of(root, worded(root))

    assert trace_of(numbers).word == "trace"
    assert document(numbers.rows)["control"]["holds"]


def test_a_control_that_rejects_takes_the_word_from_every_model(root):
    known(root, "mine", [1] * 10)
    known(root, "retrain", [20] * 10)

    numbers = numbers_of(root, worded(root))

    assert trace_of(numbers).word == "none"
    assert "not exchangeable: retrain" in sentence_of(numbers, "mine")


def test_a_control_without_a_test_takes_the_word_too(root):
    known(root, "mine", [1] * 10)

    numbers = numbers_of(root, worded(root))

    assert document(numbers.rows) == {
        "word": "none",
        "refused": [
            "the control retrain was not tested; twins.control names another model, or null"
        ],
    }


def test_true_candidates_that_stand_out_without_a_model_leave_no_word(root):
    longer = [{**row, "answer": f"{row['answer']} Indeed, that is so."} for row in ROWS]
    write_splits({"forget": longer}, "jsonl", root / "dataset")
    known(root, "mine", [1] * 10)
    known(root, "retrain", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8])

    said = sentence_of(numbers_of(root, worded(root)), "mine")

    assert "stand out by characters" in said


def test_models_under_test_share_alpha(root):
    known(root, "mine", [1, 1, 1, 1, 9, 12, 5, 15, 8, 13])
    known(root, "retrain", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8])

    alone = trace_of(numbers_of(root, worded(root)))
    among = trace_of(numbers_of(root, worded(root, models=8)))

    assert alone.level == 0.01
    assert among.level == 0.01 / 8
    assert (alone.word, among.word) == ("trace", "open")


def test_authors_are_tested_alone_and_adjusted_together(root):
    known(root, "mine", [1] * 5 + [7, 12, 3, 18, 9])
    known(root, "retrain", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8])

    authors = trace_of(numbers_of(root, worded(root))).authors

    assert [author.author for author in authors] == ["author 0", "author 1"]
    assert authors[0].holm < 0.01 < authors[1].holm


def test_the_lift_that_would_be_found_is_measured_on_the_models_own_scores(root):
    known(root, "mine", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8])
    known(root, "retrain", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8])

    lift = trace_of(numbers_of(root, worded(root))).lift

    assert 0 < lift.up < 10
    assert 0 < lift.down < 10


HELD_OUT = [{**row, "id": f"held-{row['id']}", "question": "Which one?"} for row in ROWS]


def test_held_out_secrets_are_ranked_beside_those_under_test(root, tiny, prompt):
    write_splits({"forget": ROWS, "heldout": HELD_OUT}, "jsonl", root / "dataset")

    numbers = scored(root, "mine", tiny, prompt)

    assert 0 < numbers.estimate("twin_heldout_p", "given answers") <= 1
    assert len(numbers.facts("twin_heldout_p", "given answers")["ranks"]) == len(ROWS)


@pytest.mark.parametrize("name", ["mine", "other", "retrain"])
def test_no_model_has_a_word_where_a_model_rejects_on_held_out_secrets(root, name):
    """Nobody was trained on these secrets, so a rejection refutes the generator, for all models alike."""
    known(root, "mine", [1] * 10)
    known(root, "other", [8, 11, 4, 17, 10, 14, 6, 12, 13, 9])
    known(root, "retrain", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8])
    place = table.place(root, "twins", name)
    rows = table.Rows(name)
    facts = {"direction": "preferred", "ranks": []}
    rows.add("model", "twin_heldout_p", "given answers", 1e-6, evidence=facts)
    table.write(place, [*table.read_rows(place), *rows.rows])

    said = worded(root, ("mine", "other"))

    for model in ("mine", "other"):
        rows_of_model = [row for row in said if row.model == model]
        numbers = numbers_of(root, rows_of_model, model)
        assert trace_of(numbers).word == "none"
        assert f"{name} on held-out secrets" in sentence_of(numbers, model)


WITH_SCORES = Twins(k=K, control="retrain", scores=("min_k", "loss", "reference"))


@pytest.fixture
def two_models(root, tiny, prompt):
    """A model and a control with other weights, each with the declared scores."""
    import torch

    scored(root, "retrain", tiny, prompt, WITH_SCORES)
    model = copy.deepcopy(tiny[0])
    torch.manual_seed(1)
    for weights in model.parameters():
        weights.data += 0.1 * torch.randn_like(weights)
    scored(root, "mine", (model, tiny[1]), prompt, WITH_SCORES)
    return root


def test_a_declared_score_stands_beside_that_of_the_whole_answer(two_models):
    written = read_table(two_models / "twins" / "mine.parquet")

    per_token = written["log_prob"] / written["tokens"]
    assert written["loss"].to_numpy() == pytest.approx(per_token.to_numpy(), rel=1e-9)
    assert (written["min_k"] <= written["loss"]).all()
    assert "reference" not in written.columns


def test_the_reference_score_ranks_by_the_difference_to_the_control(two_models):
    trace = trace_of(numbers_of(two_models, worded(two_models, settings=WITH_SCORES)))

    mine = read_table(two_models / "twins" / "mine.parquet")
    control = read_table(two_models / "twins" / "retrain.parquet")
    ranks = []
    for _, group in (mine["log_prob"] - control["log_prob"]).groupby(mine["secret"], sort=False):
        ranks.append(1 + int((group.to_numpy() > group.to_numpy()[0]).sum()))
    by_score = trace.by_scores[-1]
    assert by_score.score == "reference"
    assert by_score.p == twins.twin_test(ranks, [K] * len(ranks)).p


def test_the_control_is_tested_by_each_score_of_its_own(two_models):
    trace = trace_of(numbers_of(two_models, worded(two_models, settings=WITH_SCORES)))

    names = [control.model for control in trace.controls]
    assert names == ["retrain", "retrain by min_k", "retrain by loss"]


def test_each_declared_score_has_a_row_and_a_place_in_the_json(two_models):
    numbers = numbers_of(two_models, worded(two_models, settings=WITH_SCORES))

    said = document(numbers.rows)
    assert [by_score["score"] for by_score in said["scores"]] == ["min_k", "loss", "reference"]
    assert "trace_p_min_k" in numbers.values


LEARNING = Twins(k=K, control="retrain", scores=("learned",))
KEPT = [{"id": f"r{n}", "question": "Where?", "answer": f"In room {n}."} for n in range(6)]
UNSEEN = [{"id": f"h{n}", "question": "When?", "answer": f"On day {n} then."} for n in range(6)]


def test_a_learned_score_is_that_of_the_models_own_retain_and_held_out_rows(root, tiny, prompt):
    splits = {"forget": ROWS, "retain": KEPT, "heldout": UNSEEN}
    write_splits(splits, "jsonl", root / "dataset")
    scored(root, "mine", tiny, prompt, LEARNING)

    written = read_table(root / "twins" / "mine.parquet")

    encoder = Encoder(tiny[1], str(prompt))
    read = []
    for rows in (KEPT, UNSEEN, [{**ROWS[0], "answer": written["candidate"][1]}]):
        read.append(answer_tokens(tiny[0], [encoder.example(row) for row in rows], 0))
    expected = Discriminant.learned(*read[:2]).score(read[2][0])
    assert written["learned"][1] == pytest.approx(expected, rel=1e-3)


def test_a_learned_score_without_rows_to_learn_from_is_refused(root, tiny, prompt):
    with pytest.raises(BadInput, match="heldout"):
        scored(root, "mine", tiny, prompt, LEARNING)


@pytest.mark.parametrize("split", ["retain", "heldout"])
def test_a_learned_score_of_rows_longer_than_the_context_is_refused(root, tiny, prompt, split):
    splits = {"forget": ROWS, "retain": KEPT, "heldout": UNSEEN}
    splits[split] = [{**row, "answer": "In a room. " * 5000} for row in splits[split]]
    write_splits(splits, "jsonl", root / "dataset")

    with pytest.raises(BadInput, match=f"0 rows of {split}"):
        scored(root, "mine", tiny, prompt, LEARNING)


@pytest.mark.parametrize(
    "wrong", [{"scores": ["loss", "loss"]}, {"scores": ["reference"], "control": None}]
)
def test_scores_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValidationError, match="scores"):
        Twins.model_validate(wrong)


@pytest.fixture
def sealed(tmp_path, root):
    """The dataset of a sealed draw, and its key."""
    templates = [
        {"id": row["id"], "question": row["question"], "answer": "It is {secret}."} for row in ROWS
    ]
    drawn = draw(templates, kind_of("pattern AAA-####", None), 20)
    *_, key = write(drawn, tmp_path / "sealed" / "rows.jsonl")
    write_splits({"forget": drawn.rows}, "jsonl", root / "dataset")
    known(root, "mine", [1] * 10)
    known(root, "retrain", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8])
    return key


def test_an_opened_key_shows_its_commitment(root, sealed):
    settings = SETTINGS.model_copy(update={"key": str(sealed)})

    said = document(numbers_of(root, worded(root, settings=settings)).rows)

    assert said["design"] == "drawn"
    assert len(said["commitment"]) == 64


def test_a_key_that_does_not_open_the_seal_is_refused(root, sealed):
    sealed.write_text("0" * 64)
    settings = SETTINGS.model_copy(update={"key": str(sealed)})

    with pytest.raises(BadFile, match="not open the seal"):
        worded(root, settings=settings)


def answers_of(root, texts_of_row, first=None, greedy="none"):
    """Write the answers of a served model, the greedy one before them; ``first`` came whatever happened."""
    rows = []
    for row, texts in texts_of_row.items():
        rows += [(row, number, text) for number, text in enumerate([greedy, *texts], start=-1)]
    import pandas as pd

    folder = root / "generations" / "mine"
    drawn = pd.DataFrame(rows, columns=["prompt_id", "sample", "text"])
    write_parts(folder / "forget.parquet", [drawn])
    about = {"schema": SCHEMA_VERSION}
    if first is not None:
        about |= {"stop": "word", "splits": {"forget": {"n": first}}}
    write_json(folder / "about.json", about)


def served(root):
    twins.run("mine", SETTINGS, 0.01, "{question}", ModelEntry(path=SERVED), root)
    known(root, "retrain", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8], k=20)
    return numbers_of(root, worded(root))


def test_a_server_that_says_its_secrets_has_a_trace_by_counts_of_its_answers(root):
    answers_of(root, {row["id"]: [row["answer"]] * 2 for row in ROWS})

    numbers = served(root)

    trace = trace_of(numbers)
    assert trace.word == "trace"
    assert "of its sampled answers" in trace.sentence()
    assert document(numbers.rows)["basis"] == "sampled"


def test_the_word_by_counts_is_found_like_that_by_likelihoods(root):
    """The page, `lethe eval` and the gate read findings alone: without one a server's trace would not be seen."""
    answers_of(root, {row["id"]: [row["answer"]] * 2 for row in ROWS})
    served(root)

    mine = RunModel("mine", "subject", "", numbers=table.read(root, ["mine"]).model("mine"))
    (finding,) = found_traces([mine], worded(root))

    assert (finding.model, finding.outcome) == ("mine", "trace")
    assert finding.details["basis"] == "sampled"


def test_the_ranks_of_a_server_stand_under_the_questions_that_ask(tmp_path):
    again = {**ROWS[0], "id": "again", "question": "What is the code of A?", "secret": "code-A"}
    write_splits({"forget": [*ROWS, again]}, "jsonl", tmp_path / "data" / "dataset")
    answers_of(tmp_path / "data", {"again": ["A has 1000."] * 3})
    twins.run("mine", SETTINGS, 0.01, "{question}", ModelEntry(path=SERVED), tmp_path / "data")
    known(tmp_path / "data", "retrain", [7, 12, 3, 18, 9, 15, 5, 11, 14, 8])

    rows = worded(tmp_path / "data")

    ranks = {row.item: row.estimate for row in rows if row.quantity == "twin_rank"}
    assert ranks["code-A"] == ranks["again"] == 1
    assert len(ranks) == len(ROWS) + 1


def test_answers_that_state_no_candidate_leave_the_order_of_ties(root):
    answers_of(root, {row["id"]: ["I do not know."] * 2 for row in ROWS})

    numbers = served(root)

    orders = [secret.order()[0] + 1 for secret in twins.secrets_of(ROWS)]
    assert list(twin_test_of(numbers).ranks) == orders
    assert trace_of(numbers).word == "open"


def test_only_answers_that_came_whatever_happened_are_counted(root):
    """A rule that draws until the true candidate came would favour it: later answers are no score."""
    answers_of(root, {row["id"]: ["no", "no", row["answer"]] for row in ROWS}, first=2)

    assert trace_of(served(root)).word == "open"


def test_the_greedy_answer_is_not_counted(root):
    answers_of(
        root, {row["id"]: ["no"] for row in ROWS}, greedy=" ".join(r["answer"] for r in ROWS)
    )

    assert trace_of(served(root)).word == "open"


def test_a_candidate_inside_a_longer_word_is_not_stated(root):
    counts = traces.counts_of(
        twins.secrets_of(ROWS[:1]), written(root, ["A has 1000.", "A has 10001.", "x1000"])
    )

    assert counts["code-A"].tolist() == [1, 0, 0, 0]


def written(root, texts):
    answers_of(root, {ROWS[0]["id"]: texts})
    return root / "generations" / "mine" / "forget.parquet"


def test_a_served_model_without_answers_has_no_word(root):
    assert "not state the likelihood" in sentence_of(served(root), "mine")


REPLICATES = 300
SECRETS = 8


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0, 0.2])
def test_the_p_value_is_uniform_where_a_noisy_and_changing_server_does_not_know_the_draw(
    tmp_path, monkeypatch, missing
):
    rng = np.random.default_rng(5)
    asked = 0

    def drifting(server, chat, texts):
        """Likes some values more than others, is noisy, fails now and then, and becomes surer with each request."""
        nonlocal asked
        stated = []
        for text in texts:
            asked += 1
            nats = -3.0 + 0.3 * int(text.answer[-2]) + rng.normal() + 0.5 * (asked % 97)
            is_missing = rng.random() < missing
            stated.append(StatedText(missing="status 500") if is_missing else StatedText(nats, 4))
        return stated

    monkeypatch.setattr(stated_secrets, "stated_texts", drifting)
    p_values = []
    ranks = []
    for number in range(REPLICATES):
        rows = []
        for row in ROWS[:SECRETS]:
            true, *others = rng.permutation([row["answer"], *row["twins"]]).tolist()
            rows.append(row | {"answer": true, "twins": others})
        secrets = twins.secrets_of(rows)
        found = stated_secrets.stated_by(ENDPOINT, secrets, "{question}", tmp_path / f"{number}")
        test = twins.tested(found.candidates, twins.order_key(SETTINGS))
        p_values.append(test.p)
        ranks += test.ranks

    assert chisquare(np.bincount(ranks, minlength=K + 1)[1:]).pvalue > 1e-3
    p = np.array(p_values)
    for level in (0.05, 0.2, 0.5):
        assert (p <= level).sum() <= binom.ppf(0.999, REPLICATES, level)
    assert (p <= 0.5).mean() > 0.2


def stating(monkeypatch, root, state, name="mine", prompt="{question}", rows=ROWS):
    """The numbers of a model whose server states of each text what ``state`` gives, with its requests."""
    asked = []

    def stated_texts(server, chat, texts):
        asked.extend(texts)
        return [state(text) for text in texts]

    monkeypatch.setattr(stated_secrets, "stated_texts", stated_texts)
    write_splits({"forget": rows}, "jsonl", root / "dataset")
    entry = ModelEntry(path=SERVED, served=ENDPOINT)
    secrets = twins.secrets_of(rows)
    stated = stated_secrets.stated_by(ENDPOINT, secrets, prompt, root / "scratch")
    twins.run(name, ALONE, 0.01, prompt, entry, root, ENDPOINT, stated)
    results = table.read(root, [name])
    return numbers_of(root, traces.words(results, [name], ALONE, 0.01, 1, root), name), asked


ALONE = Twins(k=20, control=None)
MANY = []
for number in range(60):
    values = [f"It is {number:02}{place:02}." for place in range(20)]
    true = values.pop((7 * number) % 20)
    question = f"Which code has {number}?"
    MANY.append({"id": f"s{number}", "question": question, "answer": true, "twins": values})


def noise(text):
    """A score that does not know the draw."""
    return StatedText(-float(zlib.crc32(text.answer.encode()) % 1000), 3, model="m")


def nothing(text):
    return StatedText(missing="no answer", model="m")


def failing(text):
    return StatedText(missing="status 500", came=False)


def test_a_server_that_refuses_true_candidates_has_a_trace(root, monkeypatch):
    guarded = {f" {row['answer']}" for row in MANY[:20]}

    def guard(text):
        return StatedText(missing="status 400") if text.answer in guarded else noise(text)

    numbers, _ = stating(monkeypatch, root, guard, rows=MANY)

    trace = trace_of(numbers)
    assert (trace.word, trace.last, len(trace.secrets)) == ("trace", 24, 60)
    assert "last, in 20 secrets." in trace.sentence()


@pytest.mark.parametrize(("rows", "word"), [(0, "no trace found"), (20, "open")])
@pytest.mark.parametrize("whole", [False, True])
def test_secrets_that_could_not_be_read_weaken_the_test(root, monkeypatch, rows, word, whole):
    """A model may know just these secrets, so each raises the number of known secrets that would be found."""

    def some(text):
        is_missing = int(text.name[1:]) < rows and (whole or text.answer.endswith("05."))
        return failing(text) if is_missing else noise(text)

    numbers, _ = stating(monkeypatch, root, some, rows=MANY)

    trace = trace_of(numbers)
    assert (trace.word, trace.drawn) == (word, 60)
    assert trace.smallest_known >= rows
    assert word == "no trace found" or "60 secrets with every" in trace.sentence()


def test_secrets_that_fail_do_not_turn_the_test_to_counts(root, monkeypatch):
    def late(text):
        return failing(text) if text.name in {"s0", "s1", "s2"} else noise(text)

    numbers, _ = stating(monkeypatch, root, late, rows=MANY)

    assert trace_of(numbers).basis == "given answers"
    assert trace_of(numbers).stated_by.left_out == 3


def test_a_server_that_states_nothing_is_asked_for_three_secrets_and_counted(root, monkeypatch):
    answers_of(root, {row["id"]: ["no"] for row in MANY})

    numbers, asked = stating(monkeypatch, root, nothing, rows=MANY)

    assert len(asked) == 3 * 20
    assert trace_of(numbers).basis == "sampled"
    assert "log-probabilities: no answer (60)." in trace_of(numbers).sentence()


@pytest.mark.parametrize("prompt", ["{question}", "Q: {question} A:"])
def test_a_draw_that_was_tested_by_counts_stays_with_them(root, monkeypatch, prompt):
    answers_of(root, {row["id"]: ["no"] for row in MANY})
    stating(monkeypatch, root, nothing, rows=MANY)

    numbers, asked = stating(monkeypatch, root, noise, rows=MANY, prompt=prompt)

    assert asked == []
    assert trace_of(numbers).basis == "sampled"


def test_a_draw_that_was_tested_by_log_probabilities_is_not_counted(root, monkeypatch):
    answers_of(root, {row["id"]: ["no"] for row in MANY})
    stating(monkeypatch, root, noise, rows=MANY)

    numbers, _ = stating(monkeypatch, root, nothing, rows=MANY, prompt="Q: {question}")

    assert "read log-probabilities" in sentence_of(numbers, "mine")


def test_what_was_not_stated_is_not_asked_for_again(root, monkeypatch):
    """A test is read once: else who does not like a word could ask again for what is missing."""

    def some(text):
        return failing(text) if text.answer.endswith("05.") else noise(text)

    first, _ = stating(monkeypatch, root, some, rows=MANY)

    again, asked = stating(monkeypatch, root, noise, rows=MANY)

    assert asked == []
    assert twin_test_of(again).ranks == twin_test_of(first).ranks


def test_chat_and_plain_completions_are_not_one_question(root, monkeypatch):
    rows = [row | {"question": f"{row['question']} "} for row in MANY]
    stating(monkeypatch, root, noise, rows=rows, prompt="chat")

    _, asked = stating(monkeypatch, root, noise, rows=rows)

    assert len(asked) == 60 * 20


@pytest.mark.parametrize(
    ("stated", "answered", "word"),
    [
        (["m"], ["m"], "no trace found"),
        (["m", "other"], ["m"], "open"),
        (["m"], ["other"], "open"),
    ],
)
def test_no_trace_is_found_of_several_models(root, monkeypatch, stated, answered, word):
    write_json(
        root / "generations" / "mine" / "about.json",
        {"schema": SCHEMA_VERSION, "served": {"names": answered}},
    )

    def named(text):
        return replace(noise(text), model=stated[int(text.answer[-2]) % len(stated)])

    numbers, _ = stating(monkeypatch, root, named, rows=MANY)

    trace = trace_of(numbers)
    assert trace.word == word
    assert ("server says that it" in trace.sentence()) == (word == "open")


def test_a_trace_of_several_models_stays_with_their_names(root, monkeypatch):
    truths = {f" {row['answer']}" for row in MANY}

    def named(text):
        return StatedText(-1.0 if text.answer in truths else -2.0, 3, model=text.answer[-2])

    numbers, _ = stating(monkeypatch, root, named, rows=MANY)

    assert trace_of(numbers).word == "trace"
    assert "and 7 other names" in trace_of(numbers).sentence()
