"""False, overstated and loose statements, each as a simulation: ``python -m tests.benchmarks simulations [--only s03]``.

"Before" is the figure of the adversarial reading that found the statement; "now" is computed by the code as it is. Seeds are
those of the names. A miss is the share of runs in which a bound excludes the truth.
"""

import argparse
import math
import sys
import tempfile
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
from scipy.special import softmax
from scipy.stats import binom, fisher_exact

from lethe.certificates.certificate import FACTS, Audit, Certificate
from lethe.certificates.drawing import counted
from lethe.config.measuring import ExtractSettings
from lethe.io.files import read_jsonl
from lethe.labels.bounds import measure_labels
from lethe.labels.draws import DrawnAnswers
from lethe.labels.labels import AnswerText, LabelReason, Labels
from lethe.labels.queue import Queue
from lethe.models.encoding import Encoder
from lethe.results.ends import Ends
from lethe.results.table import Rows
from lethe.sampling import predictor as module
from lethe.sampling.answer_tree import Effort, enumerate_answers
from lethe.sampling.draws import Law
from lethe.sampling.extraction import Window, near_verbatim
from lethe.statistics.answer_tree import leak_interval
from lethe.statistics.bounds import binary_lower
from lethe.statistics.counts import random_labels
from lethe.statistics.extraction import Distance
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate, share_exceeding
from lethe.statistics.many_prompts import holm
from lethe.statistics.mean_difference import Difference, difference, mean_of_differences
from lethe.statistics.planning import samples_to_certify
from lethe.statistics.sequential import log_e_value
from lethe.verdict.rules import decide
from tests.benchmarks import simulated_twins  # noqa: F401 (adds its simulations)
from tests.benchmarks.near_verbatim import beam_mass
from tests.benchmarks.simulated_bounds import SIMULATIONS, Rng, simulation
from tests.lethe.sampling.answer_tree import toy_models
from tests.lethe.sampling.answer_tree.toy_models import ToyPredictor, every_answer
from tests.lethe.sampling.sampling_models import build_llama
from tests.lethe.sampling.test_extraction import levenshtein
from tests.lethe.verdict.simulate_rules import any_false, run

DATA = Path("data")
CHANCE = np.array([0.0002] * 25 + [0.002, 0.004, 0.009, 0.02, 0.12])  # Retrain's leak probabilities


def verdicts(
    rng: Rng, p: np.ndarray, n: int, se: np.ndarray, fp: float
) -> tuple[np.ndarray, np.ndarray]:
    """Leaks and a judge's verdicts of n answers to each question, (m, n)."""
    leak = rng.random((len(p), n)) < p[:, None]
    return leak, np.where(leak, rng.random(leak.shape) < se[:, None], rng.random(leak.shape) < fp)


@simulation("s02", "100%; 0%; 10%")
def judged_worst(rng: Rng) -> str:
    """Judge blind on one question: worst, average, labels missed."""
    p = np.r_[np.full(29, 0.02), 0.3]
    se = np.r_[np.full(29, 0.95), 0.1]
    runs = 200
    worst = average = labels = 0
    for _ in range(runs):
        leak, called = verdicts(rng, p, 1024, se, 0.01)
        picked = rng.choice(leak.size, 1500, replace=False)
        judge = Calibration.of(leak.ravel()[picked], called.ravel()[picked], of_this_run=True)
        rate = Rate.of(called.sum(axis=1), 1024, judge=judge)
        band, mean = rate.worst(0.05), rate.average(0.05)
        worst += band.upper[0] < p.max() and "in every question" not in band.assumes
        average += not mean.lower[0] <= p.mean() <= mean.upper[0]
        low, high = random_labels(int(leak.ravel()[picked].sum()), 1500, 0.05)
        labels += not low <= p.mean() <= high
    return f"{worst / runs:.0%}; {average / runs:.0%}; {labels / runs:.1%}"


def labelled(
    rng: Rng, sees: np.ndarray, leaks: np.ndarray, m: int = 20, n: int = 800
) -> list[float]:
    """The upper ends by `lethe label` of each question and of the worst; half of the mass is new texts."""
    answers = {}
    judged = {}
    for place in range(m):
        new = rng.random(n) < 0.5
        leak = rng.random(n) < leaks[place]
        texts = [
            f"{'leak' if hit else 'clean'} {draw}" if rest else "usual"
            for draw, (rest, hit) in enumerate(zip(new, leak, strict=True))
        ]
        answers[f"q{place}"] = [AnswerText(f"q{place}", text) for text in texts]
        called = rng.random(n) < np.where(new & leak, sees[place], 0.02)
        judged[f"q{place}"] = called.astype(float)
    draws = DrawnAnswers(answers, {}, judged)
    queue = Queue(draws, 0.5, 100)
    known = [*((answer, LabelReason("mass", 0.5)) for answer in queue.chosen)]
    known += [(answer, LabelReason("rest", 0.5)) for answer, _ in queue.sampled]
    labels = Labels(
        Path("labels"),
        {answer: int(answer.text.startswith("leak")) for answer, _ in known},
        dict(known),
    )
    rows = Rows("m")
    measure_labels(rows, draws, queue, labels, 0.05)
    return [
        row.upper
        for row in rows.rows
        if row.quantity in ("leak", "leak_worst") and row.upper is not None
    ]


@simulation("s02b, s02c", "92%, 20%; 100%, 23%")
def labelled_misses(rng: Rng) -> str:
    """`lethe label`, the same: question, worst missed."""
    shares = []
    runs = 20
    for sees, others, most in ((0.05, 0.3, 0.8), (0.03, 0.12, 0.8)):
        rates = np.r_[np.full(19, others), most]
        missed = np.zeros(2)
        for _ in range(runs):
            found = labelled(rng, np.r_[np.full(19, 0.97), sees], rates)
            missed += found[19] < most / 2, found[20] < most / 2
        shares += (missed / runs).tolist()
    return "{:.0%}, {:.0%}; {:.0%}, {:.0%}".format(*shares)


@simulation("s03", "bound 0, *forgot*")
def misfit(rng: Rng) -> str:
    """A calibration that does not fit."""
    judge = Calibration(leaks=200, leaks_called=190, clean=200, clean_called=60)
    _, called = verdicts(rng, np.full(30, 0.05), 1024, np.full(30, 0.3), 0.02)
    rate = Rate.of(called.sum(axis=1), 1024, judge=judge)
    fits = bool(rate.fits(0.01).all())
    ends = Ends.of_arrays([str(place) for place in range(30)], called.sum(axis=1), 1024)
    word = decide(ends, alpha=0.01, fits=fits).word
    return f"bound {rate.worst(0.01).bounds()}, word {word}"


@simulation("s03b", "6% to 100%")
def flags(rng: Rng) -> str:
    """Sound calibrations that do not fit."""
    largest = {0.01: 0.0, 0.05: 0.0}
    for m, n, fp, clean in (
        (30, 1024, 0.05, 5000),
        (400, 1024, 0.2, 5000),
        (1000, 256, 0.2, 20000),
        (400, 1024, 0.2, 10**5),
    ):
        for alpha in largest:
            flagged = 0
            for _ in range(200):
                judge = Calibration(
                    500, int(rng.binomial(500, 0.9)), clean, int(rng.binomial(clean, fp))
                )
                flagged += not Rate.of(rng.binomial(n, fp, m), n, judge=judge).fits(alpha).all()
            largest[alpha] = max(largest[alpha], flagged / 200)
    return ", ".join(f"{share:.1%}" for share in largest.values())


@simulation("s04", "32%; 73%")
def hidden_claim(rng: Rng) -> str:
    """Hidden leaks claimed of another Retrain."""
    chance = 1 - (1 - CHANCE) ** 1024
    runs = 20_000
    m = len(CHANCE)
    counts = (rng.random((runs, 9, m)) < chance).sum(axis=2)
    tables = np.array(
        [
            [fisher_exact([[a, m - a], [b, m - b]], "greater").pvalue for b in range(m + 1)]
            for a in range(m + 1)
        ]
    )
    p_values = tables[counts[:, 1:], counts[:, :1]]
    return f"{(p_values[:, 0] <= 0.01).mean():.1%}; {(p_values <= 0.01 / 8).any(axis=1).mean():.1%}"


@simulation("s05", "7.3%; 24%")
def false_forgot(rng: Rng) -> str:
    """False *forgot* of some model, 1%."""
    shares = []
    for models in (8, 30):
        words = [
            decide(Ends.of_arrays(["q"], [k], 1024), alpha=0.01, tau=0.1, models=models).word
            for k in range(120)
        ]
        most = max(k for k, word in enumerate(words) if word == "forgot")
        shares.append(1 - (1 - binom.cdf(most, 1024, 0.1 * (1 + 1e-9))) ** models)
    return "{:.2%}; {:.2%}".format(*shares)


@simulation("s05b", "0% at any n")
def fair_retrain(rng: Rng) -> str:
    """Copy of Retrain: *forgot* at rising n."""
    chance = np.r_[0.12, np.zeros(29)]
    shares = []
    for n in (1024, 16_384, 65_536):
        words = run(rng, chance, chance, 8, 200, n, tau=0.02, alpha=0.01)
        shares.append(f"{(words == 'forgot').mean():.0%} at n {n:,}")
    return ", ".join(shares)


@simulation("s06", "4.1%; 0.05%; 12.2%")
def copies(rng: Rng) -> str:
    """False certificate, 5%: chain, joined, copies."""
    goal = math.log(20)
    runs = 4000
    p = 0.05 * 1.0001
    chain = np.zeros(runs, dtype=bool)
    leaks = np.zeros(runs)
    for look in range(1, 201):
        leaks += rng.binomial(25, p, runs)
        chain |= log_e_value(leaks, np.full(runs, 25 * look), 0.05) >= goal
    base, further = rng.binomial(100, p, (runs, 1)), rng.binomial(200, p, (runs, 100))
    some = (log_e_value(base + further, np.full(further.shape, 300), 0.05) >= goal).any(axis=1)
    joined = log_e_value(base[:, 0] + further.sum(axis=1), np.full(runs, 20_100), 0.05) >= goal
    assert "in any copy" in certificate((0, 3000)).sentence()
    return f"{chain.mean():.1%}; {joined.mean():.2%}; {some.mean():.1%}, said"


def certificate(*audits: tuple[int, int]) -> Certificate:
    """A certificate of one question with these leaks and draws, tau .05 and alpha .01."""
    claim = Certificate(("q",), 0.05, 0.01, dict.fromkeys(FACTS, "x"), {"engine": {}}, {})
    return claim.with_audits(
        [
            Audit(f"auditor {seed}", (n,), seed, "x", "x", (leaks,))
            for seed, (leaks, n) in enumerate(audits)
        ]
    )


@simulation("s06c", "6%")
def stopped_auditors(rng: Rng) -> str:
    """Auditors falsely differ, 1%, stopped."""
    differ = 0
    runs = 500
    n = np.arange(1, 5001)
    for _ in range(runs):
        first = int(rng.binomial(20_000, 0.1))
        path = np.cumsum(rng.random(5000) < 0.1)
        apart = np.abs(path / n - first / 20_000) / np.sqrt(0.09 * (1 / n + 1 / 20_000))
        stop = int(np.argmax((apart >= 2.9) & (n > 20))) or 4999
        differ += not certificate((first, 20_000), (int(path[stop]), stop + 1)).homogeneous
    return f"{differ / runs:.1%}, proved"


@simulation("s06b", "certified, 1e28")
def forged(rng: Rng) -> str:
    """Forged file, refuted by 200 draws."""
    both = certificate((0, 3000), (40, 200))
    return f"{both.verdict}; own {math.exp(both.alone(both.audits[1]).log_e()):.2f}"


@simulation("s08", "2 alpha; 0.4%")
def false_changes(rng: Rng) -> str:
    """`compare`: false status, interval, 5%."""
    closed = 0
    missed = 0.0
    runs = 200
    for turned in (False, True):
        for _ in range(runs):
            p = rng.choice([0.0, 0.1, 0.3, 0.5, 0.9], 20)
            first = rng.random((20, 64))
            second = 1 - first if turned else rng.random((20, 64))
            a, b = ((uniform < p[:, None]).astype(float) for uniform in (first, second))
            differences = [difference(*pair, 0.05, True) for pair in zip(a, b, strict=True)]
            average = mean_of_differences(list(a), list(b), 0.05 / 2, True)
            listed = holm([found.p_value for found in differences], 0, 0.05 / 2)[0].any()
            closed += bool(listed or (average is not None and average.p_value <= 0.05 / 2))
            missed += np.mean([found.low > 0 or found.high < 0 for found in differences])
    return f"{closed / runs / 2:.1%}; {missed / runs / 2:.2%}"


@simulation("s08b", "0%; 1")
def paired(rng: Rng) -> str:
    """`compare`, one seed: power, width."""
    rows = []
    for n, p, q in ((256, 0.3, 0.36), (1024, 0.02, 0.06)):
        found: dict[str, list[Difference]] = {"any": [], "pairs": []}
        for _ in range(100):
            draws = rng.random(n)
            a, b = ((draws < share).astype(float) for share in (p, q))
            for kind, of_kind in found.items():
                of_kind.append(difference(a, b, 0.05, True, draws=kind))  # type: ignore[arg-type]
        widths = [
            np.mean([entry.high - entry.low for entry in of_kind]) for of_kind in found.values()
        ]
        rows.append((widths[0] / widths[1], np.mean([entry.low > 0 for entry in found["pairs"]])))
    return f"{rows[0][1]:.0%}; {rows[0][0]:.1f}, {rows[1][0]:.1f}"


@simulation("s14", "0%; 10%, unsaid")
def stopped_sides(rng: Rng) -> str:
    """`compare` with a stopped side, 5%."""
    missed = alone = 0.0
    for _ in range(100):
        sides = [adversary(rng) for _ in range(5)]
        a = (rng.random((5, 400)) < 0.1).astype(float)
        differences = [
            difference(*pair, 0.05, True, (False, True)) for pair in zip(a, sides, strict=True)
        ]
        missed += np.mean([found.low > 0 or found.high < 0 for found in differences])
    for _ in range(2000):
        stopped = adversary(rng)
        alone += binary_lower(stopped.sum(), len(stopped), 0.05) > 0.1
    return f"{missed / 100:.1%}; {alone / 2000:.1%}, refused"


def adversary(rng: Rng) -> np.ndarray:
    """Draws at .1, stopped where the mean is three standard errors above."""
    draws = (rng.random(2000) < 0.1).astype(float)
    n = np.arange(1, 2001)
    score = (np.cumsum(draws) / n - 0.1) / np.sqrt(0.09 / n)
    score[:5] = -9
    over = np.flatnonzero(score >= 3)
    return draws[: over[0] + 1] if over.size else draws


@simulation("s18", "1")
def allocation(rng: Rng) -> str:
    """Certificate: equal draws / draws."""
    laws = {
        "none leaks": np.zeros(30),
        "one .02": np.r_[np.zeros(29), 0.02],
        "five .01": np.r_[np.zeros(25), np.full(5, 0.01)],
    }
    gains = []
    for p in laws.values():
        spent = equal = 0
        for _ in range(12):
            answers = rng.random((30, 3008)) < p[:, None]

            def leaks(
                places: list[int], first: int, size: int, answers: np.ndarray = answers
            ) -> list[int]:
                return answers[places, first : first + size].sum(axis=1).tolist()

            counts, _ = counted(
                leaks,
                (3008,) * 30,
                lambda place, hits, n: float(log_e_value(hits, n, 0.05)) >= math.log(100),
            )
            spent = spent + sum(counts)
            equal = equal + 30 * max(counts)
        gains.append(f"{equal / spent:.2f}")
    return ", ".join(gains)


@simulation("s23", "100%")
def judged_language(rng: Rng) -> str:
    """Judge weak on one wording, as assumed."""

    def prompts(size: int) -> tuple[np.ndarray, np.ndarray]:
        kind = rng.random(size)
        return np.where(kind < 0.2, 0.25, np.where(kind < 0.45, 0.9, 0.0)), np.where(
            kind < 0.2, 0.02, 0.97
        )

    missed = 0
    runs = 200
    for _ in range(runs):
        p, sees = prompts(200)
        called = rng.binomial(128, p * sees + (1 - p) * 0.01)
        p, sees = prompts(3000)
        leak = rng.random(3000) < p
        judge = Calibration.of(
            leak, rng.random(3000) < np.where(leak, sees, 0.01), of_this_run=True
        )
        bound = share_exceeding(Rate.of(called, 128, judge=judge), 0.15, 0.05, "upper")
        missed += bound.value < 0.45 and "in every prompt" not in bound.assumes
    return f"{missed / runs:.0%}"


@simulation("verdict", "at most 5%")
def false_words(rng: Rng) -> str:
    """A false word, 5%."""
    first = np.eye(1, len(CHANCE))[0]
    small = np.minimum(CHANCE, 0.002)
    cases = [(CHANCE, CHANCE + more, "leaks") for more in (0 * first, 0.01 * first, 0.01)]
    cases += [
        (small, np.where(where > 0, small + 0.0102, small), "forgot")
        for where in (first, np.ones(len(CHANCE)))
    ]
    shares = [
        any_false(run(rng, chance, subject, models, 4000 // models, 1024), false)
        for chance, subject, false in cases
        for models in (1, 8, 30)
    ]
    return f"{max(shares):.1%}"


@simulation("verdict_power", "-")
def decided(rng: Rng) -> str:
    """Copy of Retrain *forgot*; three questions *leak*."""
    chance = np.r_[0.002, np.full(29, 0.0002)]
    leaky = np.r_[np.full(3, 0.04), chance[3:]]
    shares = []
    for subject, word in ((chance, "forgot"), (leaky, "leaks")):
        words = run(rng, chance, subject, 8, 50, 4096, tau=0.02, alpha=0.01)
        shares.append(f"{(words == word).mean():.0%}")
    return ", ".join(shares)


def leak(text: str) -> bool:
    return zlib.crc32(text.encode()) % 23 == 0 and len(text) > 2


@simulation("s24", "7 of 39; unsaid")
def heaviest(rng: Rng) -> str:
    """Likeliest leaking texts."""
    other = false = models = 0
    for seed in range(40):
        predictor = ToyPredictor(seed=seed, scale=1.0)
        effort = Effort(rows=400, pilot=16, seed=seed)
        (tree,) = enumerate_answers(
            [toy_models.whole_question(leak)], Law((4,), 7), predictor, effort
        )
        texts: dict[str, float] = {}
        for answer, mass in every_answer(predictor, (0,), 7, 4).items():
            (text,) = toy_models.decode([answer])
            texts[text] = texts.get(text, 0) + mass
        best = max((text for text in texts if leak(text)), key=lambda text: texts[text])
        if tree.heaviest_leaks:
            models += 1
            other += tree.heaviest_leaks[0].text != best
            for heavy in tree.heaviest_leaks:
                mass = sum(mass for text, mass in texts.items() if text.startswith(heavy.text))
                false += heavy.probability > mass * (1 + 1e-9)
    return f"{other} of {models}, said; {false} false"


def allowance_used(model: module.ModelPredictor, prompts: list[np.ndarray]) -> float:
    """The largest error of the logits on other continuations that the model draws, as a share of what is allowed."""
    with mock.patch.object(module, "LEAST_ALLOWANCE", 0.0):
        allowed = module.measured_allowance(model, prompts, 40)
        with mock.patch.object(module, "SAFETY", 1.0):
            return (
                max(module.measured_allowance(model, prompts, 40, seed) for seed in (1, 2))
                / allowed
            )


@simulation("s25", "2.9")
def allowance(rng: Rng) -> str:
    """Logit error / allowance."""
    with tempfile.TemporaryDirectory() as folder:
        build_llama(Path(folder) / "model", letters="abcdefghijklmnopqrstuvwxyz", scale=1.0)
        toy = allowance_used(
            module.ModelPredictor(Path(folder) / "model"), [np.array([5, 6, 7]), np.array([8, 9])]
        )
    used = []
    for place in (DATA / "models" / name for name in ("base", "retrain", "npo", "grad_ascent")):
        if (place / "model.safetensors").is_file():  # of a finished demonstration
            model = module.ModelPredictor(place)
            encoder = Encoder(model.checkpoint.tokenizer, "lethe/models/prompts/qa.txt")
            rows = [row for _, row in read_jsonl(DATA / "dataset/forget.jsonl")][::5]
            used.append(allowance_used(model, [np.array(encoder.prompt(row)) for row in rows]))
    return f"{toy:.2f}" + (f"; demonstration {max(used):.2f}" if used else "")


@simulation("near_verbatim", "above at equal rows")
def near(rng: Rng) -> str:
    """Near-verbatim mass beside constrained beams."""
    above = below = wrong = 0
    for seed in range(30):
        predictor = ToyPredictor(6, seed=seed)
        suffix = tuple(rng.integers(0, 5, 4).tolist())

        def chances(
            prefixes: list[tuple[int, ...]], predictor: ToyPredictor = predictor
        ) -> np.ndarray:
            return softmax(
                [predictor.logits_of((0, 3, *prefix)).astype(float) for prefix in prefixes], axis=1
            )

        answers = every_answer(predictor, (0, 3), 4, 5)
        truth = sum(
            mass
            for answer, mass in answers.items()
            if levenshtein([token for token in answer if token != 5], suffix) <= 1
        )
        path = chances([suffix[:step] for step in range(4)])
        window = Window(0, (0, 3), suffix)
        search = ExtractSettings(distance=1, beam=2, further=0, samples=0)
        found = near_verbatim(predictor, window, Law((5,), 4), search, path)
        ends = leak_interval(found.masses, found.remainder, 0.01)
        beam = beam_mass(chances, Distance(suffix, 1), 4, 2, (5,))[0]
        above = above + (ends.lower > beam * (1 + 1e-9))
        below = below + (ends.lower < beam * (1 - 1e-9))
        wrong += not ends.lower - 1e-12 <= truth <= ends.upper_certain + 1e-12
    return f"{above} above, {below} below; {wrong} false"


@simulation("s10", "0.070, 0.63, 0.91")
def shares(rng: Rng) -> str:
    """Language share: upper end."""
    ends = []
    for p in (0.0, 0.02, 0.05):
        drawn = rng.binomial(32, p, (100, 64))
        ends.append(
            np.mean([share_exceeding(Rate.of(row, 32), 0.15, 0.01, "upper").value for row in drawn])
        )
    missed = 0
    for _ in range(1000):
        leaks = rng.binomial(32, np.where(rng.random(64) < 0.3, 0.15001, 0.0))
        missed += share_exceeding(Rate.of(leaks, 32), 0.15, 0.01, "upper").value < 0.3
    assert missed <= 20
    return "{:.3f}, {:.2f}, {:.2f}".format(*ends)


@simulation("s20", "826, 207")
def planned(rng: Rng) -> str:
    """`plan`: draws for every prompt of 40 and of 400."""
    return ", ".join(str(samples_to_certify(tau, 0.01)) for tau in (0.01, 0.05))


def main(arguments: list[str]) -> int:
    asked = argparse.ArgumentParser(
        prog="python -m tests.benchmarks simulations", description=__doc__
    )
    names = sorted(SIMULATIONS)
    asked.add_argument(
        "--only", nargs="+", default=[""], metavar="NAME", help=f"of {', '.join(names)}"
    )
    print("statement | before | now\n---|---|---")
    only = tuple(asked.parse_args(arguments).only)
    for name in [name for name in names if name.startswith(only)]:
        statement, before, now = SIMULATIONS[name]
        figure = now(np.random.default_rng(zlib.crc32(name.encode())))
        print(f"{name}: {statement} | {before} | {figure}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
