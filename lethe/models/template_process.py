"""The process that fills in chat templates: a JSON request a line in, a JSON reply a line out.

It limits its own memory and files, and each rendering has a limit of processor time: the kernel ends the process then,
whatever it computes. It loads transformers' renderer, and neither torch nor another module of Lethe.
"""

import json
import random
import resource
import signal
import sys
from datetime import datetime

SECONDS = 2  # of processor time per rendering; real templates take milliseconds
MEMORY = 512 << 20  # bytes of data of the process; the renderer itself takes 60 MiB
LONGEST = 4_000_000  # characters of a rendered conversation; no context holds more
LONGEST_ERROR = 300
# The date that a template writes as today's, so that a question has one prompt on all days: that of Llama 3.1's own
# template where it knows no date.
TODAY = datetime(2024, 7, 26)
DRAWING = ("random", "lipsum")  # what a template calls that draws
DRAWS = 8  # of a template that may draw: all alike by chance in less than one of a hundred
DRAWN = "it draws at random, so a question has no prompt of its own"


def main() -> None:
    """Render templates of chats, one a line of standard input, under limits of memory, files and time."""
    from transformers.utils.chat_template_utils import render_jinja_template

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        dated: list[str] = []

        def today(form: str, dated: list[str] = dated) -> str:
            dated.append(form)
            return TODAY.strftime(form)

        draws = 1
        if any(name in request["template"] for name in DRAWING):
            draws = DRAWS
        try:
            texts = set()
            for seed in range(draws):
                random.seed(seed)
                rendered = render_jinja_template(
                    conversations=[request["messages"]],
                    chat_template=request["template"],
                    add_generation_prompt=request["speaks_next"],
                    **{**request["tokens"], "strftime_now": today},
                )
                texts.add(rendered[0][0])  # the texts come first, then what is not asked here
            reply = replied(texts, bool(dated))
        except BaseException as error:
            reply = {"error": message_of(error)}
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


def replied(texts: set[str], dated: bool) -> dict[str, str | bool]:
    """The reply to a request: the rendered text and whether it holds a date, or the error of several or of one too long."""
    text, *others = texts
    if others:
        return {"error": DRAWN}
    if len(text) > LONGEST:
        return {"error": f"its text has {len(text):,} characters, more than {LONGEST:,}"}
    return {"text": text, "dated": dated}


def message_of(error: BaseException) -> str:
    """The first line of an error, with its class where the line does not speak for itself."""
    line = (str(error).strip().splitlines() or [""])[0][:LONGEST_ERROR]
    name = type(error).__name__
    if not line:
        return name
    if "Template" in name or name in ("UndefinedError", "SecurityError"):
        return line
    return f"{name}: {line}"


if __name__ == "__main__":
    main()
