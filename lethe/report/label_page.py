"""A page on which a person labels answers, served to this machine alone for the length of a command.

The server listens on 127.0.0.1. Its address holds a random key, and it refuses a foreign Host and Origin, so neither another
user without the key nor a web page that the person has open can read an answer or set a label. The page is one document: its
content policy allows no request but its own form.
"""

import hmac
import secrets
import sys
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from markupsafe import Markup

from lethe.labels.draws import Wanted
from lethe.labels.labels import Labels, digest_of
from lethe.labels.plan import LabelPlan
from lethe.report.templates import HERE, policy, templates

HOST = "127.0.0.1"
BYTES = 4096  # of a form, which holds a digest and a key
SECONDS = 10  # for a request to arrive
LONGEST = 100_000  # characters of a text that are shown: a label is of the whole answer
LABELS = {"leak": 1, "clean": 0}
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class LabelServer(ThreadingHTTPServer):
    """A server of the plan's next answer; ``address`` is what a person opens."""

    daemon_threads = True

    def __init__(self, plan: LabelPlan, labels: Labels):
        super().__init__((HOST, 0), _Handler)
        self.plan = plan
        self.labels = labels
        self.path = f"/{secrets.token_urlsafe(32)}/"
        self.origins = [f"http://{name}:{self.server_port}" for name in (HOST, "localhost")]
        self.address = f"{self.origins[0]}{self.path}"
        self.failed: BaseException | None = None
        self.lock = threading.Lock()  # requests of two tabs come one after the other
        style = (HERE / "style.css").read_text(encoding="utf-8")
        self.style = style + (HERE / "label.css").read_text(encoding="utf-8")
        self.script = (HERE / "label.js").read_text(encoding="utf-8")

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep what failed, such as a full disk, and end the server; a browser that left is no failure."""
        error = sys.exc_info()[1]
        if isinstance(error, (ConnectionError, TimeoutError)):
            return
        self.failed = error
        self.shutdown()

    def page(self) -> str:
        """The document of the next answer, or of the end."""
        ahead = self.plan.ahead(self.labels)
        left = len(self.plan.left(self.labels))
        question = ""
        digest = ""
        wanted = Wanted()
        if ahead is not None:
            name = ahead.answer.prompt_id
            question = self.plan.draws.questions.get(name, name)
            wanted = self.plan.draws.wanted.get(name, wanted)
            digest = digest_of(ahead.answer, self.plan.draws.questions)

        allowed = policy(self.style, self.script)
        page = templates().get_template("label.html")
        return page.render(
            plan=self.plan.sentence(self.labels),
            done=len(self.plan.requested()) - left,
            left=left,
            ahead=ahead,
            question=question,
            wanted=wanted,
            digest=digest,
            number=len(self.labels.by_answer),
            longest=LONGEST,
            label_style=Markup(self.style),  # the package's own files
            label_script=Markup(self.script),
            label_policy=allowed.replace("form-action 'none'", "form-action 'self'"),
        )

    def act(self, key: str, digest: str, number: str) -> None:
        """Keep a label, or undo the last one.

        What comes late is dropped, as from an old tab or twice: a label of another answer than the next one, and an undo of
        another number than the last label's.
        """
        questions = self.plan.draws.questions
        if key == "undo":
            if number == str(len(self.labels.by_answer)):
                self.labels.undo(questions, len(self.labels.by_answer))
            return
        ahead = self.plan.ahead(self.labels)
        if key not in LABELS or ahead is None or digest != digest_of(ahead.answer, questions):
            return
        self.labels.add(ahead.answer, LABELS[key], ahead.asked, questions)


class _Handler(BaseHTTPRequestHandler):
    """A request: GET shows the next answer, POST takes what the person said of it and leads back to the page."""

    server: LabelServer
    timeout = SECONDS

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        with self.server.lock:
            page = self.server.page()
        self._send(HTTPStatus.OK, page)

    def do_POST(self) -> None:
        if not self._is_allowed():
            return
        size = self.headers.get("Content-Length", "")
        if not (size.isascii() and size.isdigit() and int(size) <= BYTES):
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is no form of this page.")
            return
        body = self.rfile.read(int(size)).decode("ascii", errors="replace")
        form = parse_qs(body)
        key = _field(form, "key")
        if key == "pause":
            self._send(HTTPStatus.OK, "The labels are kept. You can close this page.")
            self.server.shutdown()
            return

        with self.server.lock:
            self.server.act(key, _field(form, "answer"), _field(form, "number"))
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", self.server.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _is_allowed(self) -> bool:
        """Whether the request names this server and its key and no other page sent it; else refuse it."""
        hosts = self.headers.get_all("Host", [])
        origins = self.headers.get_all("Origin", [])
        is_here = len(hosts) == 1 and f"http://{hosts[0]}" in self.server.origins
        is_from_here = set(origins) <= set(self.server.origins)
        if not is_here or not is_from_here:
            refusal = "This page answers the address that the command printed."
            self._send(HTTPStatus.FORBIDDEN, refusal)
            return False
        if not hmac.compare_digest(self.path.encode(), self.server.path.encode()):
            self._send(HTTPStatus.NOT_FOUND, "The key of the address is another one.")
            return False
        return True

    def _send(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write no line per request: the address holds the key."""


def _field(form: Mapping[str, Sequence[str]], name: str) -> str:
    """The first value of a field of a form; empty where there is none."""
    if name not in form:
        return ""
    return form[name][0]
