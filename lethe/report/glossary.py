"""The glossary of the page: terms that the page uses, each linked from its first use.

Links are added to the finished page, because only there is it known which use of a term comes first. The elements in
`UNLINKED` are skipped: titles, drawings, code, other links, and all texts of models and data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from markupsafe import Markup

from lethe.evaluation.run import Run
from lethe.evaluation.standing import MEANING
from lethe.report.first_screen import keyword_rules
from lethe.text import label, upper_first

PLACE = '<dl id="terms"></dl>'  # in the template: where the terms go
UNLINKED = {
    *("title", "h1", "h2", "h4", "nav", "a", "button", "summary", "code", "pre"),
    *("blockquote", "select", "thead", "th"),
}
VOID = {"meta", "link", "br", "img", "input", "hr"}
UNTRUSTED = re.compile(r'class="[^"]*\b(untrusted|asked|meta|answers)\b')
# A drawing, script or style as a whole, or one tag.
TAG = re.compile(r"<(svg|script|style)\b.*?</\1>|<[^>]*>", re.S)
NAME = re.compile(r"</?([a-zA-Z0-9]+)")
SCORERS = {
    "keyword_leak": "whether an answer contains one of the question’s keywords, the words that the model was to forget.",
    "exact_match": "whether an answer is the expected answer, word for word.",
    "rouge_l": "the share of the expected answer’s words that an answer has in the same order, from 0 to 1.",
}
KEYWORDS = {
    "word": "A keyword counts as a whole word only: “iron” does not contain “Ron”.",
    "substring": "A keyword counts inside a longer word too: “iron” contains “Ron”.",
}


@dataclass(frozen=True)
class Term:
    """``pattern`` finds a use of the term; where the first letter may be a capital, the pattern says so."""

    name: str
    pattern: str
    meaning: str

    @property
    def key(self) -> str:
        return "term-" + re.sub(r"[^\w]+", "-", self.name.lower()).strip("-")


def linked(page: str, run: Run) -> str:
    """The page with its glossary: the terms in use by name, and a link at the first use of each."""
    open_terms = list(_terms(run))
    used: list[Term] = []
    pieces: list[str] = []
    hidden: list[str] = []  # the elements in which nothing is linked, innermost last
    end = 0
    for tag in TAG.finditer(page):
        text = page[end : tag.start()]
        end = tag.end()
        pieces += [*(_link(text, open_terms, used) if text.strip() and not hidden else [text]), tag[0]]
        if not tag[1]:
            _step(tag[0], hidden)
    pieces.append(page[end:])
    rows = [_row(term) for term in sorted(used, key=lambda term: term.name.lower())]
    return "".join(pieces).replace(PLACE, f'<dl class="columns" id="terms">{"".join(rows)}</dl>')


def _step(tag: str, hidden: list[str]) -> None:
    found = NAME.match(tag)
    name = found[1].lower() if found else ""
    if not name or name in VOID or tag.endswith("/>"):
        return
    if tag.startswith("</"):
        if hidden and hidden[-1] == name:
            hidden.pop()
    elif name in UNLINKED or UNTRUSTED.search(tag) or (hidden and hidden[-1] == name):
        hidden.append(name)


def _link(text: str, open_terms: list[Term], used: list[Term]) -> Iterator[str]:
    """The text with a link at the first use of each term that is still without one."""
    while open_terms:
        uses = [(found, term) for term in open_terms if (found := re.search(term.pattern, text))]
        if not uses:
            break
        # The first use; of two uses that begin at the same character, the longer one.
        found, term = min(uses, key=lambda use: (use[0].start(), -use[0].end()))
        yield f'{text[: found.start()]}<a class="term" href="#{term.key}">{found[0]}</a>'
        text = text[found.end() :]
        open_terms.remove(term)
        used.append(term)
    yield text


def _row(term: Term) -> str:
    return Markup('<div id="{}"><dt>{}</dt><dd>{}</dd></div>').format(term.key, term.name, term.meaning)


def _terms(run: Run) -> Iterator[Term]:
    """The terms of every run, and the terms whose meaning depends on this run."""
    words = run.words
    for term in TERMS:
        yield replace(term, meaning=words.meaning.get(term.name, term.meaning))
    if run.aim == "refuse":
        yield from OF_REFUSAL
    for known, meaning in {
        **MEANING,
        **{key: words.meaning[key] for key in MEANING if key in words.meaning},
    }.items():
        word = words.word(known)
        yield Term(word, rf"\b{word}\b", upper_first(meaning))
    for name in run.params.score.names:
        if name in SCORERS:
            rules = "".join(f" {KEYWORDS[rule]}" for rule in keyword_rules(run)) if name == "keyword_leak" else ""
            yield Term(
                label(name), rf"\b{label(name)}", upper_first(words.meaning.get(name, SCORERS[name])) + rules
            )


TERMS = (
    Term(
        "forget set",
        r"\bforget (?:set|questions?|answers?|rows)\b",
        "The questions and answers that the model was told to forget.",
    ),
    Term("retain set", r"\bretain (?:set|questions?|answers?)\b", "Questions that the model should still answer."),
    Term(
        "world facts",
        r"\bworld (?:facts?|questions?)\b",
        "Questions of general knowledge that have nothing to do with the forget set.",
    ),
    Term(
        "unlearning",
        r"\b[Uu]nlearning\b",
        "Changing a trained model so that it no longer knows chosen data, without training it from scratch.",
    ),
    Term("Base", r"\bBase\b", "The model before unlearning."),
    Term(
        "Retrain",
        r"\bRetrain\b|\bnever saw the forget set\b",
        "A model trained without the forget set, which is what unlearning tries to match.",
    ),
    Term(
        "by chance",
        r"\b[Bb]y chance\b",
        "How often a model that never saw the forget set still gives a forgotten answer.",
    ),
    Term(
        "utility",
        r"\butility\b",
        "How well the model still answers questions that have nothing to do with the forget set.",
    ),
    Term(
        "greedy answer",
        r"\bgreedy(?: answers?)?\b",
        "The answer that takes the most likely token at every step. Each question has one.",
    ),
    Term(
        "sampled answer",
        r"\bsampled(?: answers?)?\b",
        "An answer drawn at random, each token with the probability that the model gives it. Each question has many.",
    ),
    Term(
        "temperature",
        r"\btemperature\b",
        "How random the draws are: 1 draws from the model’s own distribution, a lower value stays closer to the "
        "greedy answer.",
    ),
    Term(
        "bound",
        r"\b(?:upper |lower )?bounds?\b",
        "A number that the truth stays below (upper bound) or above (lower bound), except with a small, stated "
        "probability. A bound is rounded so that it never promises more than was proven.",
    ),
    Term(
        "α",
        r"α",
        "The probability with which a bound may fail: with α = 0.01, at most once in a hundred times.",
    ),
    Term(
        "confidence interval",
        r"\bconfidence intervals?\b|\b[Rr]anges\b",
        "A lower and an upper bound on the same number, between which the truth lies unless one of the two fails.",
    ),
    Term(
        "right together",
        r"\b(?:right|hold) together\b",
        "All the statements are right at once, with at least the stated probability: the chance that any of "
        "them is wrong is no larger than α.",
    ),
    Term("Bonferroni", r"\bBonferroni\b", "Sharing α among many statements, so that all of them hold together."),
    Term(
        "independent draws",
        r"\bindependent draws\b",
        "Each answer is drawn anew from the same distribution; none influences another.",
    ),
    Term("engine", r"\b(?:prefix|transformers|vllm) engine\b", "The program that draws the answers."),
    Term(
        "M_bin",
        r"\bM_bin\b",
        "An upper bound on the probability that one answer to a question leaks (Clopper-Pearson).",
    ),
    Term(
        "M_µ",
        r"M_µ|\bµ bet\b",
        "An upper bound on the mean score of the answers to a question. M_µ is the published form, µ bet a "
        "sharper one.",
    ),
    Term(
        "M_σ",
        r"M_σ|\bσ bet\b",
        "An upper bound on the standard deviation of the scores of a question. M_σ is the published form, σ "
        "bet a sharper one.",
    ),
    Term("M_gen", r"\bM_gen\b", "An upper bound on the share of answers that score above x, for every x at once."),
    Term(
        "ED",
        r"\bED\b",
        "The mean score plus a multiple of the standard deviation: a score for development, without a guarantee.",
    ),
    Term(
        "leak@k",
        r"\basked [\d,]+(?: times)?|\bAsked [\d,]+ times|\bleak@k\b|\b[\d,]+ queries\b",
        "The probability that at least one of k answers to a question leaks. It grows with k, however rare a "
        "leak is.",
    ),
    Term(
        "worst question",
        r"\bworst (?:question|of them|of all)\b",
        "The question that leaks most. Its bound is the largest of all questions’ bounds.",
    ),
    Term("pooled", r"\bpool(?:s|ed)\b", "Over the answers to all questions taken as one sample."),
    Term(
        "adaptive temperature",
        r"\b[Aa]daptive temperature\b|\badaptive c_T\b",
        "Taking the most likely token while the model’s confidence exceeds the threshold c_T, and drawing otherwise.",
    ),
    Term(
        "entropy optimisation",
        r"\b[Ee]ntropy optimisation\b",
        "Training that also makes the answers to the forget set less varied, with the weights λ_f and λ_r.",
    ),
    Term(
        "standard deviation",
        r"\bstandard deviation\b",
        "How far the scores of a question’s answers typically lie from their mean.",
    ),
    Term(
        "AUC",
        r"\bAUC\b|\bareas? under the curve\b",
        "How well an attack distinguishes the forget set from data outside the training: 0.5 is as good as "
        "guessing, 1 is perfect.",
    ),
    Term(
        "Epsilon*",
        r"\bEpsilon\*",
        "How well the losses on the forget set can be distinguished from those on data outside the training, as a "
        "privacy parameter: 0 means not at all.",
    ),
    Term("δ", r"δ", "The probability with which a privacy guarantee with ε may fail."),
    Term(
        "ε",
        r"ε|\bepsilon\b",
        "A privacy parameter: how much more certain anybody can become about one record; 0 means not at all, and each 1 "
        "multiplies the odds by 2.7.",
    ),
    Term(
        "one-run audit",
        r"\b[Oo]ne-run audits?\b",
        "A lower bound on ε from guesses at secret bits that went through a single run.",
    ),
    Term(
        "p-value",
        r"\bp-values?\b",
        "The probability of a result at least as extreme, if nothing but chance were at work.",
    ),
    Term("certified", r"\bcertified\b", "Shown to leak at most the stated amount, with the stated guarantee."),
)
OF_REFUSAL = (
    Term("request", r"\brequests?\b", "A question that the model should refuse to answer."),
    Term(
        "compliance",
        r"\bcompliance\b|\bcompl(?:y|ied)\b|\bAn answer complies\b",
        "An answer that does what the request asks, as far as the scorer sees.",
    ),
)
