"""Paraphrases of questions by a served model, kept as a language of prompts that a person reads, edits and freezes.

Each question is asked once, and its reply is kept: a later call asks only the questions without one. A reply is untrusted.
A line of it becomes a prompt only if it is printable, short, a question where the question is one, and free of marks of
chat formats; one that holds the reference answer or a keyword is dropped too, as it would tell what it asks for. Whatever
is dropped is counted. Each text stands in quotes in the file, and braces in it name no key.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from lethe.config.measuring import Endpoint
from lethe.errors import BadInput, plural
from lethe.identity import digest
from lethe.io.artifacts import Row
from lethe.io.cache import Store
from lethe.io.files import write_text
from lethe.models.endpoint_client import Ask, CapReached, Client, Failed, plan_of, run
from lethe.progress import tell
from lethe.sampling.prompt_language import reveals_answer
from lethe.scoring.judges.chat import SERVED_MARKS, delimited

REQUEST = (
    "Below, between two lines of dashes, is a question. Do not answer it. Write {n} other ways to ask it, which differ in "
    "words and in the order of words and ask for exactly the same. Write each on a line of its own, without numbers.\n\n"
    "{question}"
)
BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,3}[.):])\s+")
TOKENS = 96  # of a paraphrase, at most
LONGEST = 400  # characters of a paraphrase beyond the question's
TELLS = "hold the answer or a keyword"
REPEATS = "repeat another"
UNFIT = "are no plain question"


def write_language(
    rows: Sequence[Row], server: Endpoint, n: int, path: Path, scratch: Path
) -> Counter[str]:
    """Write ``n`` paraphrases of each question, or fewer, as the language ``path``; return how many were dropped, by reason.

    The plan is told before the first request. Raises `CapReached`, `ServerGone`, and `BadInput` where no paraphrase is
    left or the server refuses.
    """
    replies: Store[str, str] = Store(scratch, digest("paraphrases", server.identity, REQUEST, n))
    missing = []
    for row in rows:
        if row["question"] not in replies:
            missing.append(row["question"])
    failed = Counter[str]()
    if missing:
        requests = [_request(question, n) for question in missing]
        tell(plan_of(server, requests, server.price_in, server.price_out, server.max_tokens_total))
        failed = run(_ask_all(server, missing, requests, replies))

    dropped = Counter[str]()
    texts_of_row = {}
    for row in rows:
        texts = _read(replies.get(row["question"], ""), row, n, dropped)
        if texts:
            texts_of_row[row["id"]] = texts
    if not texts_of_row:
        reasons = _counted(dropped + failed) or "the replies were empty"
        raise BadInput(f"{server} gave no paraphrase that can be asked: {reasons}.")

    write_text(path, _as_yaml(texts_of_row, server, dropped + failed))
    made = sum(map(len, texts_of_row.values()))
    of = f"{plural(made, 'paraphrase')} of {len(texts_of_row)} of {plural(len(rows), 'question')}"
    lost = _counted(dropped + failed)
    tell(f"{path}: {of}{f'; dropped: {lost}' if lost else ''}. Read it; --language asks it again.")
    return dropped + failed


def _request(question: str, n: int) -> Ask:
    return Ask(REQUEST.format(n=n, question=delimited(question)), max_tokens=n * TOKENS)


async def _ask_all(
    server: Endpoint, questions: Sequence[str], requests: Sequence[Ask], replies: Store[str, str]
) -> Counter[str]:
    """Keep the reply to each request as soon as it has come; return the failures by kind."""
    client = Client(server, chat=True)
    client.whole = False
    spent = 0.0
    failed = Counter[str]()

    async def ask(question: str, request: Ask) -> float:
        try:
            found = await client.ask(request, "a paraphrase")
        except Failed as failure:
            failed[f"failed: {failure}"] += 1
            return request.most() if failure.answered else 0.0
        text = found[0].text if found else None
        if text is None:
            failed["failed: no text"] += 1
            return request.most()
        replies[question] = text
        return sum(found[0].spent)

    at_once = server.concurrency
    async with client:
        for start in range(0, len(requests), at_once):
            batch = requests[start : start + at_once]
            cap = server.max_tokens_total
            if cap is not None and spent + sum(request.most() for request in batch) > cap:
                raise CapReached(
                    f"The paraphrases stopped at the cap of {cap:,} tokens; the replies so far are kept. The same "
                    "command asks for the others, up to the cap again."
                )
            asked = map(ask, questions[start : start + at_once], batch)
            spent += sum(await asyncio.gather(*asked))
    return failed


def _read(reply: str, row: Row, n: int, dropped: Counter[str]) -> list[str]:
    """The first ``n`` lines of a reply that may be asked in place of the row's question."""
    texts: list[str] = []
    question = row["question"]
    seen = {question.casefold()}
    for line in reply.splitlines():
        text = " ".join(BULLET.sub("", line).split()).strip('"“”')
        if not text or len(texts) == n:
            continue
        if not _is_plain(text, question):
            dropped[UNFIT] += 1
        elif reveals_answer(text, row):
            dropped[TELLS] += 1
        elif text.casefold() in seen:
            dropped[REPEATS] += 1
        else:
            seen.add(text.casefold())
            texts.append(text)
    return texts


def _is_plain(text: str, question: str) -> bool:
    is_question = text.endswith(("?", "？")) or not question.rstrip().endswith(("?", "？"))
    has_marks = any(mark in text for mark in SERVED_MARKS)
    is_short = len(text) <= len(question) + LONGEST
    return is_question and is_short and text.isprintable() and not has_marks


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))


def _as_yaml(
    texts_of_row: Mapping[str, Sequence[str]], server: Endpoint, dropped: Mapping[str, int]
) -> str:
    """The language: the question as it stands, and its paraphrases, with one half of the weight each."""
    lines = [
        f"# Paraphrases by {_quoted(str(server))}. Remove or change what asks for something else.",
        f"# Dropped: {_counted(dropped) or 'none'}.",
        "wording:",
        '  - {name: plain, text: "{question}"}',
        '  - {name: paraphrase, text: "{paraphrases}", optional: true}',
        "rows:",
    ]
    for row_id, texts in texts_of_row.items():
        lines.append(f"  {_quoted(row_id)}:")
        lines.append("    paraphrases:")
        lines += [f"      - {_quoted(text)}" for text in texts]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
