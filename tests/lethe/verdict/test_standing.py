"""Which evidence decides the two words on a model, and with which level. `test_rules` has the rule itself."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from lethe import config
from lethe.config.measuring import JudgeEntry
from lethe.results.ends import Ends
from lethe.results.evidence import Trees
from lethe.results.table import Rows
from lethe.statistics.bound import Bound, Covers, Interval
from lethe.verdict import deciding
from lethe.verdict.claims import hidden
from lethe.verdict.rules import decide
from lethe.verdict.standing import Aspect
from tests.cases import cases
from tests.lethe.verdict.deciding import (
    ALPHA,
    PARAMS,
    TAU,
    N,
    cut,
    decided,
    drawn,
    exact,
    misfit,
    model,
    params,
    run_of,
    without_keywords,
    words,
)
from tests.no_contradiction import contradictions
from tests.small import ROOT


def retrain(*parts, name="retrain"):
    return model(name, *parts, role="retrain")


@pytest.mark.parametrize(("leaks", "word"), [(0, "forgot"), (60, "open"), (400, "leaks")])
def test_sampled_answers_decide_without_retrain(leaks, word):
    (found,) = decided(model("mine", drawn("a", 0), drawn("b", leaks))).values()
    assert found.verdict.word == word
    assert (found.verdict.retrains, found.verdict.questions, found.verdict.tau) == (0, 2, TAU)
    ends = Ends.of_arrays(("a", "b"), leaks=[0, leaks], n=N)
    assert found.verdict == decide(ends, alpha=ALPHA)
    assert found.sentence.startswith(f"mine: {word}")


@pytest.mark.parametrize(("chance", "word"), [(0, "leaks"), (400, "open"), (800, "forgot")])
def test_a_question_is_compared_with_the_same_question_of_retrain(chance, word):
    mine = model("mine", drawn("a", 0), drawn("b", 400))
    other = retrain(drawn("b", chance), drawn("a", 0))
    assert words(decided(mine, other)) == [word]


@pytest.mark.parametrize("parts", [[], [drawn("a", 0)]])
def test_a_question_that_retrain_was_not_asked_proves_nothing(parts):
    mine = model("mine", drawn("a", 0), drawn("b", 400))
    assert words(decided(mine)) == ["leaks"]
    assert words(decided(mine, retrain(*parts))) == ["open"]


def beside(item, leaks, n, chance, of_retrain):
    """The counts of a question at any time, with those of a Retrain that was asked beside the model."""
    drawn_beside = [{"name": "retrain", "leaks": chance, "n": of_retrain, "missing": 0}]
    counts = {"leaks": leaks, "n": n, "missing": 0, "cut": 0, "cut_or_leaks": leaks}

    def add(rows):
        found = Rows(rows.model)
        drawn(item, leaks, n, "anytime")(found)
        evidence = counts | {"beside": drawn_beside}
        rows.rows += [dataclasses.replace(row, evidence=evidence) for row in found.rows]

    return add


@pytest.mark.parametrize(("chance", "word"), [(0, "leaks"), (2000, "forgot")])
def test_the_answers_of_retrain_beside_the_model_count(chance, word):
    mine = model("mine", drawn("a", 400, 4000), beside("a", 400, 4000, chance, 8000))
    other = retrain(drawn("a", 400, 4000), drawn("a", 400, 4000, "anytime"))

    found = decided(mine, other)["mine"].verdict

    assert found.word == word
    assert (found.drawn.total, found.drawn.retrain_total) == (4000, 8000)


def refused(rows):
    """A reason why nothing may be claimed of the model's answers."""
    rows.add("model", "refused", "sampled", 1.0, evidence={"reasons": ["No engine was checked."]})


@pytest.mark.parametrize(("chance", "word"), [(0, "leaks"), (2000, "forgot")])
def test_the_draws_of_a_refused_retrain_say_nothing_of_chance(chance, word):
    mine = model("mine", drawn("a", 400, 4000), beside("a", 400, 4000, chance, 8000))

    assert words(decided(mine, retrain(drawn("a", 0)))) == [word]
    assert words(decided(mine, retrain(drawn("a", 0), refused))) == ["open"]


@pytest.mark.parametrize(
    ("streams", "word"),
    [(("one", "two"), "forgot"), (("one", "one"), "open"), (("shared", "shared"), "open")],
)
def test_draws_that_share_random_numbers_are_compared_by_their_ends(streams, word):
    """At 900 of 3,000 leaks the product of both likelihoods proves what the ends of each do not."""
    models = []
    for name, role, stream in zip(
        ("mine", "retrain"), ("subject", "retrain"), streams, strict=True
    ):
        retrain = model(name, drawn("a", 900, 3000, "anytime"), role=role)
        row = retrain.questions[0].numbers.row("leak", "anytime")
        row.evidence["stream"] = stream
        models.append(retrain)

    assert words(decided(*models, settings=params(report={"tau": 0.066}))) == [word]


@pytest.mark.parametrize(
    ("streams", "word"), [(("one", "two"), "forgot"), (("shared", "shared"), "open")]
)
def test_graded_scores_of_shared_random_numbers_are_compared_by_their_ends(streams, word):
    """180 answers with a mean of .3: the product of both capitals proves what the ends of each do not."""
    values = np.tile([0.0, 0.3, 0.6], 60)
    models = []
    for name, role, stream in zip(
        ("mine", "retrain"), ("subject", "retrain"), streams, strict=True
    ):
        scores = np.array([values])
        drawn_alone = model(name, without_keywords("a"), role=role, scores=scores, binary=False)
        drawing = dataclasses.replace(drawn_alone.drawing, stream=stream)
        models.append(dataclasses.replace(drawn_alone, drawing=drawing))

    settings = params(metrics={"binary": None}, report={"tau_graded": 0.12})
    assert words(decided(*models, settings=settings)) == [word]


def test_shared_random_numbers_take_nothing_from_a_model_without_retrain():
    mine = model("mine", drawn("a", 0, basis="anytime"))
    mine.questions[0].numbers.row("leak", "anytime").evidence["stream"] = "shared"

    found = decided(mine, settings=params(report={"retrain": None}))["mine"].verdict

    assert (found.word, found.anytime) == ("forgot", True)


@pytest.mark.seconds
def test_cut_answers_of_all_that_were_drawn_count():
    counted = beside("a", 0, 4000, 0, 4000)

    def cut_off(rows):
        counted(rows)
        facts = {**rows.rows[-1].evidence, "cut": 900, "cut_or_leaks": 900}
        rows.rows[-1] = dataclasses.replace(rows.rows[-1], evidence=facts)

    found = decided(model("mine", cut_off, cut("a", 0, 0, n=100)), retrain(drawn("a", 0)))

    assert words(found) == ["open"]
    assert (found["mine"].verdict.cut, found["mine"].verdict.answers) == (900, 4000)


def test_a_scorer_is_no_chance_for_labels():
    mine = model("mine", drawn("a", 0), drawn("a", 400, 4000, "labelled"))
    assert words(decided(mine, retrain(drawn("a", 0, 4000, "labelled")))) == ["leaks"]
    assert words(decided(mine, retrain(drawn("a", 0)))) == ["open"]


CLEAN = {"leak": 0.0, "clean": 0.9995}
MARKED = {"scorers": [{"keyword_leak": {"keyword_match": "substring"}}]}


def test_exact_bounds_join_where_they_are_about_the_same_event():
    few = [drawn("a", 0, 200), drawn("b", 0, 200)]  # too few to show a share below tau
    joined = model("mine", *few, exact("a", "b", **CLEAN))
    alone = model("mine", *few)
    assert words(decided(alone)) == ["open"]
    assert words(decided(joined)) == ["forgot"]
    for other in (
        params(exact={"scorer": "exact_match"}),
        params(exact=None),
        params(sample={"language": "flows/languages/wordings.yaml"}),
        params(sample={"truncated": "missing"}),  # the samples are about answers beyond the limit
        params(score=MARKED),
    ):
        assert words(decided(joined, settings=other)) == ["open"]
    noted = model("mine", *few, exact("a", "b", **CLEAN, dtype="bfloat16", note="as computed here"))
    assert words(decided(noted)) == ["open"]


def test_certain_ends_count_where_nothing_of_the_rest_is_sampled():
    few = [drawn("a", 0, 200)]
    only = params(exact={"exact_only": True})
    assert words(decided(model("mine", *few, exact("a", **CLEAN)), settings=only)) == ["forgot"]
    assert words(decided(model("mine", *few, exact("a", leak=0.02, clean=0.9)), settings=only)) == [
        "leaks"
    ]


@pytest.mark.parametrize("retrain", [None, "retrain", ["retrain", "other"]])
@pytest.mark.parametrize(
    ("exact", "stop"), [(PARAMS.exact, "fixed"), (PARAMS.exact, "word"), (None, "word")]
)
def test_what_is_doubted_beforehand_is_what_a_model_without_a_leak_would_get(retrain, exact, stop):
    """The least number of answers that is not doubted earns *forgot*, one answer less does not."""
    names = [retrain] if isinstance(retrain, str) else retrain or []
    models = {name: PARAMS.models["npo"] for name in ("m", "k", *names)}
    report = PARAMS.report.model_copy(update={"base": None, "retrain": retrain})
    changed = PARAMS.model_copy(update={"models": models, "report": report, "exact": exact})

    def doubted(n):
        return deciding.doubt(
            changed.model_copy(
                update={"sample": PARAMS.sample.model_copy(update={"n": n, "stop": stop})}
            )
        )

    least = next(n for n in range(400, 1200) if not doubted(n))
    share = (
        2 if stop == "fixed" else 1
    )  # a tree that knows nothing takes half the level and decides nothing
    for n, word in ((least, "forgot"), (least - 1, "open")):
        nothing = Trees(*(np.array([value]) for value in (0.0, 0.0, 1.0, 1.0, 0.001, 0.0)))
        ends = Ends.of_arrays(("a",), 0, n, trees=nothing if share == 2 else None)
        chance = [Ends.of_arrays(("a",), 0, n)] * len(names)
        assert decide(ends, chance, alpha=PARAMS.metrics.alpha, models=2).word == word
    params = PARAMS.model_copy(
        update={"metrics": PARAMS.metrics.model_copy(update={"binary": None})}
    )
    assert deciding.doubt(params) == ""


def test_the_sample_of_a_tree_counts_where_the_number_of_answers_is_fixed():
    """A rule that draws until the word is certain reads counts alone, and no level is kept for a tree."""
    tree = exact("a", leak=0.0, clean=0.5, rho=2000.0)
    mine = model("mine", drawn("a", 3, 200), tree)

    fixed = decided(mine, settings=params(sample={"stop": "fixed"}))["mine"].verdict
    word = decided(mine, settings=params(sample={"stop": "word"}))["mine"].verdict

    assert (fixed.word, fixed.anytime) == ("forgot", False)
    assert (word.word, word.anytime) == ("open", True)


def test_labels_decide_before_all_else():
    """A person's labels take the place of the scorer's verdicts, and of exact bounds by that scorer."""
    verdicts = drawn("a", 400)
    labels = drawn("a", 0, 4000, "labelled")
    assert words(decided(model("mine", verdicts))) == ["leaks"]
    assert words(decided(model("mine", verdicts, labels))) == ["forgot"]
    assert words(decided(model("mine", verdicts, labels, exact("a", leak=0.05, clean=0.9)))) == [
        "forgot"
    ]


def test_questions_that_stopped_at_different_numbers_are_decided_by_the_scorer_of_the_stop():
    """Their verdicts are of unequal numbers, so that no pooled share can be bounded; each question can."""
    parts = [drawn("a", 0, 3000, "anytime"), drawn("b", 400, 5000, "anytime")]
    mine = model("mine", *parts)
    uneven = mine.answers["forget"].iloc[:3]
    found = decided(dataclasses.replace(mine, answers={"forget": uneven}))["mine"]
    assert (found.word, found.verdict.graded, found.verdict.questions) == ("leaks", False, 2)


def scored(mean, n=4000):
    """Two questions whose scores have this mean."""
    return (
        np.random.default_rng(1).permutation(np.arange(n) < mean * n)[None, :].repeat(2, axis=0)
        * 1.0
    )


def test_scores_decide_where_no_scorer_gives_0_or_1():
    parts = [without_keywords("a"), without_keywords("b")]

    def found(share, chance):
        models = [model("mine", *parts, scores=scored(share), binary=False)]
        if chance is not None:
            models.append(
                model("retrain", *parts, role="retrain", scores=scored(chance), binary=False)
            )
        return decided(*models, settings=params(metrics={"binary": None}))["mine"]

    assert found(0.3, 0.3).verdict.graded
    assert found(0.3, 0.3).verdict.tau == pytest.approx(0.1)
    assert [found(*pair).word for pair in ((0.3, 0.3), (0.5, 0.3), (0.4, 0.3))] == [
        "forgot",
        "leaks",
        "open",
    ]
    # Any answer has some score: without Retrain a score proves no leak.
    assert [found(share, None).word for share in (0.02, 0.5)] == ["forgot", "open"]


def test_unjudged_questions_are_counted_and_leave_the_rule():
    found = decided(model("mine", drawn("a", 0), without_keywords("b"), without_keywords("c")))[
        "mine"
    ].verdict
    assert (found.word, found.questions, found.unjudged) == ("forgot", 1, 2)
    assert found.worst.item == "a"


def test_a_model_of_which_no_question_can_be_judged_has_no_word():
    found = decided(model("mine", without_keywords("a"), without_keywords("b")))["mine"]
    assert (found.word, found.verdict.questions, found.verdict.unjudged) == ("none", 0, 2)
    assert "2 of 2" in found.sentence


@cases
def test_cut_off_answers_forbid_forgot(ended, either, word):
    found = decided(model("mine", drawn("a", 0), cut("a", ended, either)))["mine"].verdict
    assert found.word == word
    assert (found.cut, found.answers, found.limit) == (ended, N, 40)
    if word == "open":
        assert (found.in_the_way.reason, found.in_the_way.cut) == ("cut off", ended / N)


def test_the_models_under_test_share_alpha():
    """Base and Retrain are no models under test; every other model of the table is."""
    subjects = [model(f"m{place}", drawn("a", 0)) for place in range(4)]
    others = [model("base", drawn("a", 4000), role="base"), retrain(drawn("a", 0))]
    for standing in decided(*subjects, *others).values():
        if standing.verdict:
            assert (standing.verdict.models, standing.verdict.alpha) == (4, ALPHA)
            assert standing.verdict.level == pytest.approx(ALPHA / 4)
    found = decided(*subjects, settings=params(report={"models": 20}))["m0"].verdict  # of a sweep
    assert (found.models, found.level) == (20, pytest.approx(ALPHA / 20))
    few = decided(*subjects, settings=params(report={"models": 2}))["m0"].verdict
    assert few.models == 4, "a table has at least the models that it shows"


def test_params_name_the_number_of_models_under_test():
    loaded = config.load(ROOT / "params.yaml")

    assert loaded.report.models == len(loaded.subjects)


def interval(lower, upper):
    return Interval((lower + upper) / 2, lower, upper, 30_000, 0.001, "made up")


@pytest.fixture
def kept(monkeypatch):
    """The utility of each model by its name; what was asked of whom is in ``asked``."""
    known = {}
    asked = []

    def measure(measured, alpha):
        asked.append((measured.name, alpha))
        return known.get(measured.name)

    quantity = SimpleNamespace(words="kept", measure=measure, worded=str)
    monkeypatch.setattr(deciding, "mean_score", lambda split, scorer: quantity)
    return SimpleNamespace(known=known, asked=asked)


BASE = model("base", drawn("a", 4000), role="base")


def test_a_destroyed_model_is_called_so_whatever_it_forgot(kept):
    kept.known |= {"mine": interval(0.1, 0.2), "base": interval(0.9, 1.0)}
    found = decided(model("mine", drawn("a", 0)), BASE)["mine"]
    assert (found.word, found.utility.word) == ("forgot", "destroyed")
    assert found.words == "forgot, destroyed"
    assert found.tone == "open"


@pytest.mark.parametrize(("level", "expected"), [(0.01, 0.01 / 6), (0.001, 0.001)])
def test_all_intervals_of_utility_share_alpha(kept, level, expected):
    """Two ends for each of three models, whatever the comparisons needed."""
    mine = model("mine", drawn("a", 0))
    deciding.standings(run_of(mine, retrain(drawn("a", 0)), BASE), SimpleNamespace(level=level))
    assert [alpha for _, alpha in kept.asked] == pytest.approx([expected] * len(kept.asked))
    assert kept.asked


@pytest.fixture(scope="module")
def run_with_exact_bounds(tmp_path_factory):
    """A run on files of which exact bounds prove one model to leak and another not to."""
    from lethe import config
    from tests.lethe.report.synthetic import write_exact, write_run
    from tests.lethe.verdict.deciding import certified

    root = tmp_path_factory.mktemp("run")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    write_run(
        root,
        3,
        192,
        models={
            name: models[name] for name in ("base", "retrain", "grad_ascent", "grad_diff", "npo")
        },
    )
    items = [f"forget-{place:03d}" for place in range(3)]
    for name, leak, clean in (
        ("retrain", 0.001, 0.9985),
        ("grad_ascent", 0.0, 0.9985),
        ("npo", 0.02, 0.6),
    ):
        write_exact(root, name, certified(items, leak, clean, 1e4))
    return root


def test_no_word_contradicts_a_certain_end(run_with_exact_bounds):
    checked, found = contradictions(run_with_exact_bounds / "data")
    assert found == []
    assert set(checked) == {"grad_ascent", "grad_diff", "npo"}
    assert set(checked.values()) == {"leaks", "forgot", "open"}


JUDGED = params(metrics={"binary": "guard"}).model_copy(
    update={"judges": {"guard": JudgeEntry.model_construct(judge="llama_guard")}}
)


def judged_as(mine, name="guard"):
    """The model with the verdicts of the judge in place of those of the scorer."""
    mine.answers["forget"] = mine.answers["forget"].rename(columns={"keyword_leak": name})
    return mine


@pytest.mark.parametrize(("leaks", "word"), [(0, "forgot"), (400, "leaks")])
def test_the_judge_is_named_with_the_word(leaks, word):
    found = decided(judged_as(model("mine", drawn("a", leaks))), settings=JUDGED)["mine"]
    assert found.word == word
    assert "guard's verdicts" in found.sentence
    assert (
        "verdicts"
        not in decided(model("mine", drawn("a", leaks)), settings=PARAMS)["mine"].sentence
    )
    scorer = PARAMS.model_copy(
        update={"metrics": PARAMS.metrics.model_copy(update={"binary": "harmbench"})}
    )
    found = decided(judged_as(model("mine", drawn("a", leaks)), "harmbench"), settings=scorer)[
        "mine"
    ]
    assert "harmbench's verdicts" in found.sentence


def test_a_misfit_names_the_judge_and_no_word():
    found = decided(judged_as(model("mine", drawn("a", 400), misfit)), settings=JUDGED)["mine"]
    assert (found.word, found.tone, found.verdict.questions, found.verdict.worst) == (
        "none",
        "open",
        1,
        None,
    )
    assert "guard" in found.sentence


def test_labels_are_no_verdicts_of_the_judge():
    labels = drawn("a", 0, 4000, "labelled")
    found = decided(judged_as(model("mine", drawn("a", 400), labels)), settings=JUDGED)["mine"]
    assert found.word == "forgot"
    assert "guard" not in found.sentence


def true_leaks(item, lower):
    """The lower bound of the true share of leaks, the judge's error included."""
    bound = Bound(lower, "lower", 0.01, Covers.ONE_PROMPT, "draws", "made up")
    return lambda rows: rows.add(
        "question", "leak", "judged", None, bound, None, item=item, split="forget"
    )


def greedy(item, leaks):
    return lambda rows: rows.add("question", "leak", "greedy", leaks, item=item, split="forget")


@pytest.mark.parametrize(
    ("parts", "counted"),
    [
        ([drawn("a", 8), greedy("a", 0.0)], 1),
        ([drawn("a", 0), greedy("a", 0.0)], 0),
        ([drawn("a", 8), greedy("a", 1.0)], 0),
        ([drawn("a", 8), greedy("a", 0.0), true_leaks("a", 0.0)], 0),
        ([drawn("a", 8), greedy("a", 0.0), true_leaks("a", 0.01)], 1),
    ],
)
def test_a_verdict_alone_is_no_hidden_leak_where_the_judge_errs(parts, counted):
    assert hidden(model("mine", *parts)) == (counted, 1)


@pytest.mark.parametrize(
    ("is_staged", "is_refused", "said"),
    [
        (False, False, "not measured (give --retain and --base)"),
        (False, True, "not measured"),
        (True, False, "not measured"),
    ],
)
def test_a_utility_without_numbers_names_an_option_only_where_it_would_help(
    is_staged, is_refused, said
):
    assert Aspect("open").described(is_staged, is_refused) == said
