"""One valid file for each reader of users' files, and the call that reads such a file."""

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.lethe.certificates.test_check import CLAIM
from tests.lethe.io.logs.small_logs import KINDS, small
from tests.lethe.scoring.test_tofu_log import evaluation
from tests.small import ROOT

ROW = {"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]}
ROWS = [
    ROW,
    ROW | {"id": "b", "context": "The sea.", "perturbed_answer": ["Ada sings."], "author": None},
]
STATED = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [{"name": "m", "digest": {"sha256": "0" * 64}}],
    "predicateType": "https://lethe.example/attestation/eval-result/v0.1",
    "predicate": {
        "claims": [CLAIM],
        "sampleSize": 4096,
        "evidence": [{"name": "d.json", "digest": {"sha256": "0" * 64}}],
    },
}
LANGUAGE = """
system: [null, {name: strict, text: Answer in one word., weight: 0.5}]
shots:
- null
- {name: one, examples: [{question: "Who?", answer: Bo.}], weight: 2}
wording: ["{question}", {name: polite, text: "Please: {question}", optional: true}]
prefix: [null, {text: "Sure,"}]
share: {prompts: 8, answers: 2, tau: 0.1}
"""


@dataclass(frozen=True)
class Reader:
    """A reader, the name and content of a file that it reads, and how often it is chosen.

    ``kind`` says how the content is changed: as text, bytes, zip or parquet.
    """

    name: str
    file: str
    content: bytes
    read: Callable[[Path], object]
    kind: str = "text"
    weight: int = 4


def _lines(*rows: object) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _parquet(table: Any) -> bytes:
    target = io.BytesIO()
    table.to_parquet(target)
    return target.getvalue()


def _zstandard(content: bytes) -> bytes:
    import pyarrow as pa

    target = pa.BufferOutputStream()
    with pa.CompressedOutputStream(target, "zstd") as stream:
        stream.write(content)
    return target.getvalue().to_pybytes()


def _logs(folder: Path) -> list[Reader]:
    from lethe.api.logs import tofu_log
    from lethe.io.logs import is_log, read_log

    def read(path: Path) -> object:
        is_log(path)
        log = read_log(path)
        return log.summary(), [log.scored(score) for score in log.scores]

    found = []
    for kind in KINDS:
        content = small(kind, folder).read_bytes()
        found.append(
            Reader(f"log {kind}", "a.log", content, read, "zip" if kind == "eval" else "text")
        )
    answers = b"prompt_id,sample,text,score\na,-1,greedy,0\na,0,Ron,1\nb,1,,0.5\n"
    aggregates = evaluation(folder, n=3).read_bytes()
    return [
        *found,
        Reader("answers CSV", "a.csv", answers, lambda path: read_log(path).summary()),
        Reader(
            "TOFU evaluation",
            "a.json",
            aggregates,
            lambda path: tofu_log(path, retain=path).as_json(),
        ),
    ]


def _tables() -> list[Reader]:
    import pandas as pd

    from lethe.audits.kinds.guesses import read_guesses, read_tradeoff
    from lethe.audits.twin_ranks import read_ranks
    from lethe.audits.unlearning_game.swap import advantages
    from lethe.io.judged_answers import read_calibration, read_labelled
    from lethe.io.records import read_losses
    from lethe.labels.draws import read_draws
    from lethe.measure.score_files import read_scores

    scores = pd.DataFrame(
        {
            "prompt_id": ["a", "a", "b", "b"],
            "score": [0.0, 1.0, 0.5, 0.25],
            "text": ["x", "", "=1", "z"],
        }
    )
    swap = pd.DataFrame(
        [
            (half, member, "loss", 0.5, 1.0)
            for half in ("original", "swapped")
            for member in ("forget", "test")
        ]
        * 2,
        columns=["split", "member", "attack", "accept", "weight"],
    )
    drawn = scores.assign(sample=[0, 1, 0, 1])[["prompt_id", "sample", "text"]]
    tables: list[tuple[str, Any, Callable[[Path], object]]] = [
        ("scores", scores, lambda path: read_scores(path, "worst")),
        ("scores dropped", scores, lambda path: read_scores(path, "drop")),
        (
            "guesses",
            pd.DataFrame({"bit": [0, 1, 1], "guess": [0, 1, 0], "score": [0.5, 3.0, -1.0]}),
            read_guesses,
        ),
        ("losses", pd.DataFrame({"loss": [0.5, 1.25, 3.0]}), read_losses),
        ("predictions", swap, advantages),
        (
            "twins",
            pd.DataFrame(
                {
                    "secret": ["a", "a", "b", "b"],
                    "candidate": ["1", "2", "3", "4"],
                    "score": [0.5, -1.0, 2.0, 2.0],
                    "true": [0, 1, 1, 0],
                }
            ),
            read_ranks,
        ),
        (
            "ranks of twins",
            pd.DataFrame({"secret": ["a", "b"], "rank": [1, 3], "candidates": [20, 5]}),
            read_ranks,
        ),
        (
            "trade-off",
            pd.DataFrame({"alpha": [0.0, 0.25, 1.0], "beta": [1.0, 0.5, 0.0]}),
            read_tradeoff,
        ),
        ("calibration", pd.DataFrame({"label": [1, 0, 1], "verdict": [1, 0, 0]}), read_calibration),
        (
            "labelled answers",
            pd.DataFrame(
                {
                    "question": ["Who?"] * 2,
                    "text": ["a", "b"],
                    "label": [1, 0],
                    "answer": ["c", "d"],
                }
            ),
            read_labelled,
        ),
        ("draws", drawn, lambda path: read_draws(path, None, None, None)),
    ]
    found = []
    for name, table, read in tables:
        found.append(Reader(f"{name} CSV", "a.csv", table.to_csv(index=False).encode(), read))
        found.append(
            Reader(f"{name} JSON lines", "a.jsonl", _lines(*table.to_dict("records")), read)
        )
        found.append(Reader(f"{name} Parquet", "a.parquet", _parquet(table), read, "parquet", 2))
    table = scores.to_csv(index=False).encode()
    forms = {
        "scores semicolon": ("a.csv", table.replace(b",", b";"), "text"),
        "scores tab": ("a.tsv", table.replace(b",", b"\t"), "text"),
        "scores yes": ("a.csv", b"prompt_id;score\na;yes\na;no\nb;1\n", "text"),
        "scores percent": ("a.csv", b"prompt_id,score\na,3%\na,40 %\nb,0\n", "text"),
        "scores records": ("a.json", scores.to_json(orient="records").encode(), "text"),
        "scores gzip": ("a.csv.gz", gzip.compress(table), "bytes"),
        "scores Zstandard": ("a.csv.zst", _zstandard(table), "bytes"),
    }
    for name, (file, content, kind) in forms.items():
        found.append(Reader(name, file, content, lambda path: read_scores(path, "worst"), kind, 2))
    return [*found, Reader("losses plain", "a.txt", b"0.5\n1.25\n3\n", read_losses)]


def _others() -> list[Reader]:
    from lethe.api.attesting import verified
    from lethe.certificates.certificate import FACTS, Audit, Certificate, read_certificate
    from lethe.certificates.draws import Draws, QuestionDraws, read_draws
    from lethe.certificates.envelope import Envelope, Signature, canonical
    from lethe.config import load, read_yaml
    from lethe.data.rows import csv_entries, json_entries, read_rows
    from lethe.io.files import read_artifact
    from lethe.labels.labels import read_labels
    from lethe.models.encoding import read_template
    from lethe.sampling.prompt_language import productions, read_language
    from lethe.scoring.tofu import KEYS, SECTIONS
    from lethe.scoring.tofu import read_log as read_tofu

    def language(path: Path) -> object:
        found = read_language(path)
        return [productions(found, dict(row)) for row in ROWS]  # type: ignore[arg-type]

    def csv_answers(path: Path) -> object:
        return [entry.text("answer") for entry in csv_entries(path, ["question"])]

    def json_ids(path: Path) -> object:
        return [entry.text("id") for entry in json_entries(path)]

    def stated(path: Path) -> object:
        return verified(path, None, None, None).sentences()

    drawn = Draws((QuestionDraws("a", 9, (0, 4)),), "0" * 64, 1)
    enveloped = Envelope(canonical(STATED), (Signature("k", b"0" * 64),)).as_json()
    claim = Certificate(
        ("a", "b"), 0.1, 0.05, dict.fromkeys(FACTS, "0" * 64), {"engine": {}}, {"model": "m"}
    )
    seed, after = claim.next_seed("a")
    claim = claim.with_audits([Audit("a", (10, 10), seed, "prefix", "2026-01-01", (0, 1), after)])
    section: dict[str, object] = {
        "avg_gt_loss": {"0": 0.5},
        "avg_paraphrased_loss": {"0": 1.0},
        "average_perturb_loss": {"0": [2.0, 4.0]},
        "generated_text": {"0": ["Who?", "It was Ron.", "Ron"]},
        "rougeL_recall": {"0": 1.0},
    }
    assert set(KEYS) <= set(section)
    label = {
        "schema": 1,
        "prompt_id": "a",
        "question": "Who?",
        "text": "x",
        "label": 1,
        "part": "mass",
        "target": 0.9,
    }
    quoted = b'question,answer\n"Who, then?","Ron"\nWhere?, "Here"\n'
    about = {"schema": 1, "kind": "authors", "rows": {"forget": 2}}
    return [
        Reader("params", "params.yaml", (ROOT / "params.yaml").read_bytes(), load, weight=1),
        Reader("YAML", "a.yaml", b"a: {b: [1, 2.5, null]}\nc: &x [on, 026]\nd: *x\n", read_yaml),
        Reader("rows", "a.jsonl", _lines(*ROWS), read_rows),
        Reader("rows CSV", "a.csv", b'question,answer,keywords\nWho?,"Bo, he",Bo|Bob\n', read_rows),
        Reader("source CSV", "a.csv", quoted, csv_answers),
        Reader("source JSON", "a.json", json.dumps(ROWS).encode(), json_ids),
        Reader(
            "labels", "a.jsonl", _lines(label, label | {"text": "y", "part": "rest"}), read_labels
        ),
        Reader(
            "certificate",
            "a.json",
            json.dumps(claim.as_dict(), indent=1).encode(),
            read_certificate,
        ),
        Reader("statement", "a.json", json.dumps(STATED).encode(), stated),
        Reader("envelope", "a.json", json.dumps(enveloped).encode(), stated),
        Reader("draws", "a.json", json.dumps(drawn.as_json()).encode(), read_draws),
        Reader("prompt language", "a.yaml", LANGUAGE.encode(), language, weight=2),
        Reader("prompt", "a.txt", b"Question: {question}\nAnswer:", read_template),
        Reader(
            "TOFU log",
            "a.json",
            json.dumps({name: section for name in SECTIONS.values()}).encode(),
            read_tofu,
        ),
        Reader("artifact", "a.json", json.dumps(about).encode(), read_artifact),
    ]


def _sources(folder: Path) -> list[Reader]:
    """The files of datasets, and the files that stand beside others."""
    import numpy as np

    from lethe.config.load import parse
    from lethe.data import images
    from studies.landscape.study import _adult
    from tests.lethe.data import benchmark_files as benchmarks
    from tests.lethe.io.logs.small_logs import lm_eval_results

    found = []
    for kind in benchmarks.OPTIONS:
        root = folder / kind
        benchmarks.write_benchmark(kind, root)
        for path in sorted(place for place in root.rglob("*.*") if place.is_file()):

            def read(changed: Path, kind: str = kind, root: Path = root) -> object:
                return benchmarks.load(kind, root)

            found.append(
                Reader(
                    f"{kind} {path.name}",
                    str(path.relative_to(folder)),
                    path.read_bytes(),
                    read,
                    weight=2,
                )
            )

    def read_results(path: Path) -> object:
        from lethe.io.logs import read_log

        lines = path.with_name("samples_some_task_2026-01-01T00-00-00.5.jsonl")
        if not lines.is_file():
            lines.write_bytes(small("lm-eval", folder).read_bytes())
        return read_log(lines).summary()

    results = json.dumps(lm_eval_results(2, 2)).encode()
    adult = (
        b"age,workclass,income\n39, Private,<=50K\n50, ?,>50K\n41, State,>50K\n20,Private,<=50K.\n"
    )
    idx = b"\x00\x00\x08\x03" + b"".join(size.to_bytes(4, "big") for size in (2, 3, 3)) + bytes(18)
    return [
        *found,
        Reader("lm-eval results", "results_2026-01-01T00-00-00.5.json", results, read_results),
        Reader(
            "Adult CSV",
            "a.csv",
            adult,
            lambda path: _adult(str(path), None, np.random.default_rng(0)),
        ),
        Reader("IDX", "images-idx3-ubyte", idx, lambda path: images._idx(path, 3), "bytes", 2),
        Reader("IDX gzip", "zipped-idx3-ubyte.gz", gzip.compress(idx), _unzipped, "bytes", 2),
        Reader(
            "CIFAR-10 binary", "a.bin", bytes([3]) + bytes(3072), images._cifar10_binary, "bytes", 2
        ),
        Reader("-S", "a.txt", b"sample.n={a: [1, 2.5, 2026-01-01]}", _assignment(parse)),
    ]


def _unzipped(path: Path) -> object:
    from lethe.data import images

    return images._idx(path.with_suffix(""), 3)


def _assignment(parse: Callable[[str], object]) -> Callable[[Path], object]:
    return lambda path: parse(path.read_bytes().decode("utf-8", "surrogateescape"))


@cache
def readers(folder: Path) -> list[Reader]:
    """Every reader; ``folder`` takes the small logs while they are made."""
    return [*_logs(folder), *_tables(), *_others(), *_sources(folder)]
