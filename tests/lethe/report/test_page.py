"""The page: complete, byte-identical, free of what the artifacts do not hold, and safe."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from flows.shards import section
from lethe import config
from lethe.evaluation.headline import split
from lethe.evaluation.run import load as load_run
from lethe.io.json_files import read_json, write_json
from lethe.report import columns, verdicts
from lethe.report.page import render
from lethe.report.tables import flatten
from lethe.statistics.bound import Bound, Covers, joint_level, level
from tests.lethe.report.conftest import MODELS, PROVENANCE, load
from tests.lethe.report.synthetic import change_json, change_questions, guarantees, verdict_on_npo

GOLDEN = Path(__file__).parent / "golden_page.txt"


def test_the_same_artifacts_give_the_same_bytes(page, artifacts):
    again = render(load(artifacts))
    assert again.html == page.html
    assert again.summary == page.summary
    assert again.plots == page.plots
    assert again.figures == page.figures


def test_every_model_has_a_verdict_that_holds_its_bounds(page):
    for name in MODELS:
        told = page.summary["models"][name]
        for part in told["verdict"].split(" In full: "):
            assert part in unlinked(page.html)
        for key, covers in (("m_bin_worst", Covers.WORST_PROMPT), ("m_bin_pooled", Covers.AVERAGE)):
            bound = Bound.from_dict(told["bounds"][key])
            assert (bound.value, bound.covers, bound.alpha) == (told["metrics"][key], covers, 0.01)
            for part in (bound.percent(), bound.relation, bound.level(), bound.assumes):
                assert part in told["verdict"]
        assert ("0.9" in told["verdict"].split("temperature")[1].split(" to ")[0]) == name.endswith("_at")


def test_the_wording_of_the_page_is_the_golden_one(small_page):
    """The one test of wording; `LETHE_WRITE_GOLDEN=1 pytest` writes the page as it is now, to be read and committed."""
    words = page_words(small_page.html)
    if os.environ.get("LETHE_WRITE_GOLDEN"):
        GOLDEN.write_text(words, encoding="utf-8")
    assert words.splitlines() == GOLDEN.read_text(encoding="utf-8").splitlines()


def unlinked(html: str) -> str:
    """The page without bold figures and links to the glossary, which come between words."""
    return re.sub(r'</?b>|<a class="term"[^>]*>|</a>', "", html)


def page_words(html: str) -> str:
    """What a reader reads, a line per element; neither drawings nor the dump of the params."""
    html = re.sub(r"<(style|svg|pre|script)\b.*?</\1>", "", html, flags=re.S)
    lines = (" ".join(line.split()) for line in re.sub(r"<[^>]+>", "\n", unlinked(html)).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def test_the_page_asks_for_nothing_outside_itself(page):
    addresses = re.findall(r'(?:src|href|action|poster|data)\s*=\s*"([^"]*)"', page.html)
    assert all(address.startswith(("#", "data:,")) for address in addresses)
    assert "@import" not in page.html
    assert not re.findall(r"url\((?!#)", page.html)
    assert re.findall(r"<script[^>]*>", page.html) == [
        '<script type="application/json" id="questions-data">',
        "<script>",
    ]


def test_figures_stand_alone(page):
    import xml.etree.ElementTree as ElementTree

    assert {f"{kind}-npo.svg" for kind in ("histogram", "mgen", "questions", "convergence")} < set(page.figures)
    for drawing in page.figures.values():
        assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in drawing


def test_identifiers_are_unique(page):
    identifiers = re.findall(r'\bid="([^"]*)"', page.html)
    assert len(identifiers) == len(set(identifiers))
    assert set(re.findall(r"url\(#([^)]+)\)", page.html)) <= set(identifiers)


def test_hostile_generations_are_shown_as_text(page):
    assert "&lt;script&gt;document.title" in page.html
    assert "&lt;img src=x" in page.html
    assert ">␛</span>[31m" in page.html
    assert "characters in all" in page.html
    assert page.html.isprintable() or not re.search(r"[\x00-\x08\x0b-\x1f\u202e\u200b]", page.html)


def test_what_is_missing_is_named_and_not_fatal(own_small):
    for path in ("metrics/npo.json", "epsilon_star/retrain/result.json", "curves/npo_at/m_gen.json"):
        (own_small / "data" / path).unlink()
    shutil.rmtree(own_small / "data/generations/npo_at")
    page = render(load(own_small))
    missing = {entry["path"]: entry["made_by"] for entry in page.summary["missing"]}
    assert missing["data/metrics/npo.json"] == "metrics@npo"
    assert missing["data/epsilon_star/retrain/result.json"] == "epsilon_star@retrain"
    assert missing["data/curves/npo_at/m_gen.json"] == "metrics@npo_at"
    assert any("generations/npo_at" in path for path in missing)
    assert "artifacts missing" in page.html
    assert page.summary["models"]["npo"]["verdict"] == "No verdict: the metrics of npo are missing."


def test_metrics_without_their_details_are_named_as_incomplete(own_small):
    place = own_small / "data/metrics/npo.json"
    whole = {"schema": 1, **read_json(place)}
    shown, details = split(whole)
    write_json(place, shown)
    assert ("data/metrics/details/npo.json", "metrics@npo") in load(own_small).missing
    write_json(own_small / "data/metrics/details/npo.json", details)
    run = load(own_small)
    assert run.missing == []
    assert next(model.metrics for model in run.models if model.name == "npo") == whole


def test_a_report_of_nothing_is_a_page_that_says_so(own_small):
    shutil.rmtree(own_small / "data")
    page = render(load(own_small))
    assert len(page.summary["missing"]) > 20
    assert "No verdict: the metrics of base are missing." in page.html


def test_only_what_params_name_is_shown(own_small):
    text = (own_small / "params.yaml").read_text()
    entry = re.search(r"  npo_at:\n    path: data/models/npo\n    adaptive_threshold: 0.9\n", text).group(0)
    (own_small / "params.yaml").write_text(text.replace(entry, ""))
    (own_small / "data/metrics/stranger.json").write_text("{}")
    page = render(load(own_small))
    assert "npo_at" not in page.summary["models"]
    assert "npo_at</h3>" not in page.html
    assert "stranger" not in page.html


def test_bounds_are_rounded_away_from_the_estimate(own_small):
    change_json(own_small / "data/metrics/npo.json", m_bin_worst=0.12301, m_mu_worst=0.50001, mean=0.50001)
    row = render(load(own_small)).html.split('<th scope="row">npo<small>')[1].split("</tr>")[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", row)
    assert "12.4%" in cells
    assert (cells[1], cells[5]) == ("0.500", "0.501")


def test_a_verdict_without_binary_scores_uses_the_mean(own_artifacts):
    keys = ("m_bin_worst", "m_bin_pooled", "binary_any", "binary_greedy", "binary_mean")
    change_json(
        own_artifacts / "data/metrics/npo.json", **dict.fromkeys(keys), tighter_mean_worst=0.4321, greedy_mean=0.2
    )
    change_questions(own_artifacts, lambda place: {"m_bin": None, "binary_share": None, "binary_greedy": None})
    sentence = verdict_on_npo(own_artifacts)
    assert sentence.startswith(
        "The mean ROUGE-L recall is at most 0.433 on the worst of all 6 forget questions (by"
    )
    assert "greedy answers have a mean ROUGE-L recall of 0.200" in sentence


def test_questions_that_were_not_judged_are_not_covered(own_artifacts):
    change_json(own_artifacts / "data/metrics/npo.json", m_bin_pooled=None)
    change_questions(own_artifacts, lambda place: {"m_bin": None, "binary_share": None} if place == 0 else {})
    sentence = verdict_on_npo(own_artifacts)
    assert "show keyword leak on the worst of the 5 judged of 6 forget questions" in sentence
    assert "of 5 questions leaked at least once" in sentence


def test_one_checkpoint_without_references_or_keywords(own_small):
    """What `lethe eval` renders: no Base, no Retrain, no 0/1 score, no privacy stage."""
    whole = config.load(own_small / "params.yaml")
    metrics = whole.metrics.model_dump() | {"binary": None}
    sections = {"models": {"npo": {"path": "/models/mine"}}, "metrics": metrics, "score": {"scorers": ["rouge_l"]}}
    checked = config.evaluation_params(**sections, sample=whole.sample.model_dump() | {"prompt": "chat"})
    keys = ("m_bin_worst", "m_bin_pooled", "binary_any", "binary_greedy", "binary_mean", "share_m_bin_above")
    change_json(own_small / "data/metrics/npo.json", **dict.fromkeys(keys))
    change_questions(own_small, lambda place: {"m_bin": None, "binary_share": None, "binary_greedy": None})
    page = render(load_run(checked, own_small / "data", PROVENANCE))
    assert page.summary["missing"] == []
    assert page.summary["models"]["npo"]["standing"] == "open"
    assert "intervals of all 0" not in page.html
    assert "to the chat template" in page.summary["models"]["npo"]["verdict"]
    told = re.sub(r"<(style|script|pre)\b.*?</\1>", "", page.html, flags=re.S)
    assert not re.search(r"M_bin|keyword|Retrain|Base", told)


def test_no_bound_is_claimed_where_the_metrics_hold_none(own_artifacts):
    keys = ("m_bin_worst", "m_bin_pooled", "m_mu_worst", "m_sigma_worst", "tighter_mean_worst")
    change_json(own_artifacts / "data/metrics/npo.json", **dict.fromkeys(keys))
    sentence = verdict_on_npo(own_artifacts)
    assert sentence.startswith("No bound for a fixed number of answers holds here; what was observed:")
    assert "probability" not in sentence


def test_a_verdict_after_an_early_stop_gives_anytime_valid_values_only(own_small):
    fixed = ("m_bin_worst", "m_bin_pooled", "m_mu_worst", "m_sigma_worst", "tighter_mean_worst")
    numbers = {"sequential_scorer": "keyword_leak", "sequential_alpha": 0.02, "sequential_tau": 0.05}
    numbers |= {
        "sequential_tau_leak": 0.1,
        "certified": 1,
        "leaking_questions": 2,
        "undecided": 0,
        "n_questions": 3,
    }
    numbers |= {
        "anytime_upper_worst": 0.4011,
        "anytime_sd_upper_worst": 0.3,
        "samples_drawn": 5000,
        "samples_saved": 1,
        "samples_saved_share": 0.5,
    }
    change_json(own_small / "data/metrics/npo.json", **dict.fromkeys(fixed), **numbers)
    change_questions(own_small, lambda place: {"m_bin": None, "m_mu": None, "anytime_upper": 0.1 * place})
    write_json(own_small / "data/curves/npo/bounds.json", guarantees(0.02, 64))
    write_json(own_small / "data/curves/npo/leak_at_k.json", [])
    settings = yaml.safe_load((own_small / "params.yaml").read_text())
    change_json(own_small / "data/generations/npo/about.json", stop="sequential")
    settings["sample"]["stop"] = "sequential"
    settings["sample"]["sequential"]["alpha"] = 0.02
    (own_small / "params.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    run = load(own_small)
    page = render(run)
    told = page.summary["models"]["npo"]
    assert told["standing"] == "leaks, open"
    assert {key for key in told["bounds"] if key.endswith(("_worst", "_pooled"))} == {
        "anytime_upper_worst",
        "anytime_sd_upper_worst",
    }
    assert "Asked 1,000 times" not in told["verdict"]
    bound = Bound.from_dict(told["bounds"]["anytime_upper_worst"])
    assert bound.level() in told["verdict"]
    assert f"{bound.relation} 40.2% {bound.on('them')}" in told["verdict"]
    assert re.search("<dd>up to [0-9,]+ sampled, 1 greedy</dd>", page.html)
    assert re.search('<td class="n">forget [0-9]+ × up to ', page.html)
    assert "<dt>each bound fails in</dt><dd>at most 2% of cases</dd>" in unlinked(page.html)
    assert joint_level(0.02, 0.02) in page.html
    shown = {column.key: column for group in columns.sampling_columns(run) for column in group.columns}
    assert {"certified", "leaking_questions", "undecided", "samples_saved_share"} <= set(shown)
    # The verdicts' own alpha, not that of the bounds for a fixed number.
    for key in ("anytime_upper_worst", "anytime_sd_upper_worst"):
        assert level(0.02) in shown[key].told


def test_epsilon_star_that_is_infinite(own_small):
    change_json(own_small / "data/epsilon_star/npo/result.json", epsilon_star=None, infinite=True)
    section = render(load(own_small)).html.split('id="epsilon-star"')[1].split("</section>")[0]
    assert "∞" in section


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # the entries are empty: only their names count here
@pytest.mark.parametrize("kind", ["audits", "games"])
def test_audits_and_games_have_sections_only_when_named(own_small, page, kind):
    assert f'id="{kind}"' not in page.html
    row = {"method": "exact", "epsilon_lower": 3.87, "p_value": 0.012, "assumes": ["r_fixed"], "note": "<b>"}
    none = {**row, "method": "steinke", "epsilon_lower": None, "p_value": None}
    counts = {"n": 5000, "r": [100, 200], "errors": [3, 9], "delta": 1e-5, "alpha": 0.05}
    result = {**counts, "results": [row, none, {**none, "infinite": True}], "mechanism": "gaussian"}
    place = "audits/mine/result.json" if kind == "audits" else "games/mine.json"
    write_json(own_small / "data" / place, result)
    settings = config.load(own_small / "params.yaml").model_copy(update={kind: {"mine": {}}})
    html = render(load_run(settings, own_small / "data", PROVENANCE)).html
    section = html.split(f'id="{kind}"')[1].split("</section>")[0]
    assert "3.87" in section
    assert "gaussian" in section
    assert "&lt;b&gt;" in section
    if kind == "audits":
        assert "3 / 9 errors among the 100 / 200 most confident guesses of 5,000 secret bits" in section
        assert "0.012" in section
        assert "family rejected" in section
        assert "Each bound except chernoff’s holds with probability" in section
        assert "∞" in section
        assert "r fixed: r was fixed before the guesses were seen" in section


def test_any_result_file_becomes_values_and_tables():
    result = {"quality": 0.97531, "ok": True, "by_attack": {"loss": {"a": 0.1}}, "seeds": [1, 2], "x": None}
    values, tables = flatten(result)
    assert values == [("quality", "0.9753"), ("ok", "yes"), ("seeds", "1, 2"), ("x", "–")]
    assert tables == [("by_attack", ["name", "a"], [["loss", "0.1"]])]


def test_columns_without_a_value_are_left_out_and_intervals_stand_beside_their_auc(page, artifacts):
    rows = page.html.split("Likelihoods, membership and diversity")[1].split("</table>")[0]
    assert re.findall(r'title="[^"]*">([^<]*)</th>', rows) == ["loss", "quality", "model", "retain", "world"]
    npo = rows.split('<th scope="row">npo<small>')[1].split("</tr>")[0]
    quality = read_json(artifacts / "data/compare.json")["npo.forget_quality"]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", npo)
    assert cells == ["0.80<small>0.60–0.90</small>", f"{quality:.2g}", "0.700", "40.0%", "40.0%"]


def test_the_question_shown_is_chosen_by_the_rule(run, page):
    highest = max(
        ((row.m_bin, model.name, row.question) for model in run.subjects for row in model.questions),
        key=lambda entry: entry[0],
    )
    section = page.html.split('id="question"')[1].split("</section>")[0]
    assert f"bound with {highest[1]} is the highest" in section
    assert highest[2] in section


def test_plots_hold_every_model_and_only_numbers(page, artifacts):
    assert {row["model"] for row in page.plots["m_gen.json"]} == set(MODELS)
    assert {row["model"] for row in page.plots["per_question.json"]} == set(MODELS)
    steps = read_json(artifacts / "data/models/npo/training.json")["steps"]
    rows = page.plots["training_loss.json"]
    drawn = [row for row in rows if row["model"] == "npo" and row["step"] is not None]
    assert {row["model"] for row in rows if row["step"] is None} == set(
        MODELS
    )  # rows without a point: one colour a model
    assert [(row["step"], row["loss"]) for row in drawn] == [(row["step"], row["loss"]) for row in steps]


def test_a_bound_without_its_guarantee_is_not_shown(own_small):
    (own_small / "data/curves/npo/bounds.json").unlink()
    run = load(own_small)
    page = render(run)
    assert {"path": "data/curves/npo/bounds.json", "made_by": "metrics@npo"} in page.summary["missing"]
    assert page.summary["models"]["npo"]["bounds"] == {}
    npo = next(model for model in run.models if model.name == "npo")
    for group in columns.sampling_columns(run):
        for column in group.columns:
            if isinstance(column, columns.BoundColumn):
                assert column.cell(npo) == "–"
                assert column.cell(run.role("base")) != "–"


def test_what_is_certified_together_is_in_the_verdict_and_has_its_column(own_small):
    place = own_small / "data/curves/npo/bounds.json"
    claim = {"correction": "holm", "metric": "m_bin", "alpha": 0.01, "threshold": 0.1, "assumes": "draws"}
    together = claim | {"covers": "the list of certified prompts", "method": "Holm", "certified": ["a", "b"]}
    write_json(place, read_json(place) | {"together": together})
    change_json(own_small / "data/metrics/npo.json", certified_together=2)
    run = load(own_small)
    shown = {column.key: column for group in columns.sampling_columns(run) for column in group.columns}
    npo = next(model for model in run.models if model.name == "npo")
    assert shown["certified_together"].cell(npo) == "2"
    assert npo.certificate.guarantee(run.words.questions) in shown["certified_together"].told
    assert "2 certified together" in verdicts.sentence(npo, run)


def test_a_verdict_covers_the_draws_with_all_that_cuts_them(own_small):
    place = own_small / "data/generations/npo/about.json"
    write_json(place, read_json(place) | {"top_p": 0.9, "top_k": 5, "max_new_tokens": 7})
    sentence = render(load(own_small)).summary["models"]["npo"]["verdict"]
    assert "of up to 7 tokens at temperature 1, top-p 0.9, top-k 5, to prompt" in sentence


def test_answers_that_nobody_judged_are_not_said_to_score_zero(own_small):
    from lethe.io.tables import read_table, write_parquet

    shutil.rmtree(own_small / "data/generations/npo_at")
    place = own_small / "data/scores/npo/forget.parquet"
    table = read_table(place)
    write_parquet(place, table.assign(rouge_l=float("nan"), keyword_leak=float("nan")))
    html = render(load(own_small)).html
    for name in ("npo", "npo_at"):
        assert f"<strong>{name}</strong> no answer was judged" in html
    write_parquet(place, table.assign(rouge_l=0.0, keyword_leak=0.0))
    assert "<strong>npo</strong> no judged answer scored above 0" in render(load(own_small)).html


def test_a_mean_of_bounds_is_not_said_to_be_a_bound(page):
    titles = re.findall(r"<span>above 0\.5: ([^<]*)", page.html)
    assert len(titles) == len(MODELS)
    assert all(re.fullmatch(r"bound [\d.]+ on average", title) for title in titles), titles


def test_epsilon_star_that_is_not_told_has_its_reason(own_small):
    from lethe.steps.epsilon_star import _untold

    for place in (own_small / "data/epsilon_star").glob("*/result.json"):
        write_json(place, _untold(5, 0))
    html = render(load(own_small)).html
    assert _untold(5, 0)["note"] in html
    assert re.search(r"<td>npo</td>\s*<td class=\"n\">–</td>\s*<td class=\"n\">–</td>", html)


def test_a_run_in_shards_has_the_page_of_an_undivided_one(own_small, small_page):
    path = own_small / "params.yaml"
    value = yaml.safe_load(path.read_text())
    value["shards"] = section(config.load(path).models, 2)
    path.write_text(yaml.safe_dump(value, sort_keys=False))
    assert render(load(own_small)).html == small_page.html
