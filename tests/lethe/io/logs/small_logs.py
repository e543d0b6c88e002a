"""Small logs of every format, in the form in which the tools write them."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa

ZSTANDARD = 93
DEFLATE = 8


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
    return path


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def pack(
    entries: list[tuple[str, bytes]], method: int = ZSTANDARD, stated: dict[str, int] | None = None
) -> bytes:
    """A zip archive; `zipfile` of Python 3.11 writes no Zstandard. ``stated`` lies about an entry's size."""
    body = b""
    listing = b""
    for name, content in entries:
        size = (stated or {}).get(name, len(content))
        if method == ZSTANDARD:
            packed = pa.Codec("zstd").compress(content, asbytes=True)
        else:
            deflate = zlib.compressobj(wbits=-15)
            packed = deflate.compress(content) + deflate.flush()
        encoded = name.encode()
        fields = (45, 0, method, 0, 33, zlib.crc32(content), len(packed), size, len(encoded), 0)
        listing += struct.pack(
            "<4s6H3I5H2I",
            b"PK\x01\x02",
            45,
            *fields[:5],
            *fields[5:8],
            *fields[8:],
            0,
            0,
            0,
            0,
            len(body),
        )
        listing += encoded
        body += struct.pack("<4s5H3I2H", b"PK\x03\x04", *fields) + encoded + packed
    end = struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, len(entries), len(entries), len(listing), len(body), 0
    )
    return body + listing + end


def sample(
    identity: Any = "q", epoch: int = 1, text: str = "Ron", scores: Any = None, **more: Any
) -> dict[str, Any]:
    """A sample of Inspect with one score, `match`, unless ``scores`` gives others."""
    values = {"match": "C"} if scores is None else scores
    return {
        "id": identity,
        "epoch": epoch,
        "input": "Who?",
        "target": "Ron",
        "messages": [{"role": "user", "content": "Who?"}],
        "output": {"model": "m", "choices": [{"stop_reason": "stop"}], "completion": text},
        "scores": {name: {"value": value, "history": []} for name, value in values.items()},
        "events": [{"event": "noise", "score": float("nan")}],
        **more,
    }


def header(ids: list[Any], epochs: int = 2, **more: Any) -> dict[str, Any]:
    generate = more.pop("generate", {"temperature": 1.0, "seed": 3})
    spec = {
        "task": "t",
        "model": more.pop("model", "hf/m"),
        "dataset": {"name": "d", "samples": len(ids), "sample_ids": ids},
        "model_generate_config": generate,
        "config": {"epochs": epochs},
        "packages": {"inspect_ai": "0.3.285"},
        "scorers": [{"name": "match"}],
    }
    return {"version": 2, "status": "success", "eval": spec, "plan": {"steps": []}, **more}


def entries(
    head: dict[str, Any], samples: list[dict[str, Any]], chunked: bool = False
) -> list[tuple[str, bytes]]:
    """The entries of an .eval in the order of writing; a run still going on has no ``header.json``."""
    found = [("_journal/start.json", {key: head[key] for key in ("version", "eval", "plan")})]
    for record in samples:
        name = f"samples/{record['id']}_epoch_{record['epoch']}"
        if chunked:
            whole = {
                key: value for key, value in record.items() if key not in ("messages", "events")
            }
            found += [(f"{name}/sample.json", whole | {"message_refs": [[0, 1]]})]
            found += [
                (f"{name}/messages/0.json", record["messages"]),
                (f"{name}/events/0.json", record["events"]),
            ]
        else:
            found += [(f"{name}.json", record)]
    found += [("_journal/summaries/1.json", []), ("summaries.json", []), ("reductions.json", [])]
    if head["status"] != "started":
        found += [("header.json", head)]
    return [(name, json.dumps(value).encode()) for name, value in found]


def eval_log(
    path: Path,
    head: dict[str, Any],
    samples: list[dict[str, Any]],
    method: int = ZSTANDARD,
    **how: Any,
) -> Path:
    path.write_bytes(pack(entries(head, samples, **how), method))
    return path


def lm_eval_line(
    document: int, answers: list[str], filter: str = "none", kept: Any = None, **metrics: Any
) -> dict:
    settings = {"until": ["\n"], "do_sample": True, "temperature": 1.0}
    return {
        "doc_id": document,
        "doc": {"question": "Who?"},
        "target": "Ron",
        "arguments": {"gen_args_0": {"arg_0": f"Who {document}?", "arg_1": settings}},
        "resps": [answers],
        "filtered_resps": [(answers or [None])[0] if kept is None else kept],
        "filter": filter,
        "metrics": list(metrics),
        **metrics,
    }


def lm_eval_results(repeats: int, documents: int, **more: Any) -> dict[str, Any]:
    config = {"task": "some_task", "repeats": repeats, "generation_kwargs": {}} | more.pop(
        "config", {}
    )
    run = {"model": "hf", "model_args": {"pretrained": "m"}, "use_cache": None} | more.pop(
        "run", {}
    )
    return {
        "results": {"some_task": {"name": "some_task", "exact_match,none": 0.5}},
        "configs": {"some_task": config},
        "n-samples": {"some_task": {"original": documents, "effective": documents}},
        "config": run,
        "lm_eval_version": "0.4.13",
        **more,
    }


def lm_eval_log(folder: Path, lines: list[dict], results: dict[str, Any] | None = None) -> Path:
    if results is not None:
        write_json(folder / "results_2026-01-01T00-00-00.5.json", results)
    return write_lines(folder / "samples_some_task_2026-01-01T00-00-00.5.jsonl", lines)


def leak_k_line(*texts: str | None, **more: Any) -> dict[str, Any]:
    responses = [{"response": text, "rougeL_recall": 0.5, "exact_match": 0} for text in texts]
    best = {"response": texts[0], "rougeL_recall": 0.75}
    return {
        "prompt": "Who?",
        "ground_truth": "Ron",
        "responses": responses,
        "best_answer": best,
        **more,
    }


def garak_attempt(
    seq: int,
    texts: list[str | None],
    results: dict[str, list[float | None]],
    probe: str = "dan.Dan_10_0",
) -> list[dict[str, Any]]:
    """The two lines of an attempt in garak's report: generated, and judged."""
    outputs = [None if text is None else {"text": text, "lang": "en"} for text in texts]
    prompt = {"turns": [{"role": "user", "content": {"text": f"Who {seq}?"}}]}
    names = {
        "uuid": f"{probe}-{seq}",
        "seq": seq,
        "probe_classname": probe,
        "prompt": prompt,
        "outputs": outputs,
    }
    return [
        {"entry_type": "attempt", "status": status, **names, "detector_results": detected}
        for status, detected in ((1, {}), (2, results))
    ]


def garak_eval(
    detector: str, passed: int, fails: int, nones: int, probe: str = "dan.Dan_10_0"
) -> dict[str, Any]:
    counts = {"passed": passed, "fails": fails, "nones": nones, "total_evaluated": passed + fails}
    return {"entry_type": "eval", "probe": probe, "detector": detector, **counts}


def garak_log(
    path: Path, rows: list[dict[str, Any]], seed: int | None = None, ended: bool = True
) -> Path:
    setup = {
        "entry_type": "start_run setup",
        "run.seed": seed,
        "run.generations": 2,
        "plugins.target_name": "m",
    }
    init = {"entry_type": "init", "garak_version": "0.17.1"}
    return write_lines(
        path, [setup, init, *rows, *([{"entry_type": "completion"}] if ended else [])]
    )


def promptfoo_row(
    test: int, output: Any, passes: bool = True, prompt: int = 0, **more: Any
) -> dict[str, Any]:
    """A result of promptfoo; every second place is a repeat of the test."""
    country = ("France", "Gaul")[test // 2]
    case = {
        "vars": {"country": country},
        "assert": [{"type": "contains", "value": "Paris", "metric": "format"}],
    }
    return {
        "promptIdx": prompt,
        "testIdx": test,
        "vars": case["vars"],
        "testCase": case,
        "prompt": {"raw": f"Capital of {country}?"},
        "provider": {"id": "js", "label": "js"},
        "response": {"output": output},
        "success": passes,
        "score": float(passes),
        "namedScores": {"format": float(passes)},
        "failureReason": int(not passes),
        **more,
    }


def promptfoo_log(path: Path, rows: list[dict[str, Any]], **run: Any) -> Path:
    results = {"version": 3, "prompts": [], "results": rows, "stats": {"successes": 1}}
    head = {"evalId": "e", "results": results, "runtimeOptions": {"repeat": 2, **run}}
    return write_json(path, head | {"metadata": {"promptfooVersion": "0.121.20"}})


def helm_log(path: Path, answers: list[list[str]], **spec: Any) -> Path:
    """A scenario_state.json of HELM, with statistics beside it: exact_match is 1 where the first completion is Ron."""
    states = []
    statistics = []
    for place, texts in enumerate(answers):
        completions = [{"text": text, "logprob": 0, "tokens": []} for text in texts]
        states.append(
            {
                "instance": {
                    "id": f"id{place}",
                    "input": {"text": "Who?"},
                    "references": [],
                    "split": "test",
                },
                "train_trial_index": 0,
                "request": {
                    "prompt": f"Who {place}?",
                    "num_completions": len(texts),
                    "temperature": 1.0,
                },
                "result": {"success": True, "completions": completions, "cached": False},
            }
        )
        scores = {"num_references": 2, "exact_match": float(texts[0] == "Ron")}
        stats = [
            {"name": {"name": name, "split": "test"}, "count": 1, "mean": mean}
            for name, mean in scores.items()
        ]
        statistics.append({"instance_id": f"id{place}", "train_trial_index": 0, "stats": stats})
    write_json(path.with_name("per_instance_stats.json"), statistics)
    head = {"method": "generation", "model": "m", "temperature": 1.0, "num_outputs": 2, **spec}
    return write_json(path, {"adapter_spec": head, "request_states": states})


def openai_batch_line(name: str, *texts: str | None, **more: Any) -> dict[str, Any]:
    """A request of OpenAI's batch output that brought these choices; each ended by itself."""
    choices = [
        {"index": n, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for n, text in enumerate(texts)
    ]
    body = {"object": "chat.completion", "model": "m", "choices": choices}
    response = {"status_code": 200, "request_id": "r", "body": body}
    return {"id": f"batch_{name}", "custom_id": name, "response": response, "error": None, **more}


def openai_request(name: str, question: str, **body: Any) -> dict[str, Any]:
    """A line of the input file of a batch."""
    messages = [{"role": "user", "content": question}]
    request = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions"}
    return request | {"body": {"model": "m", "messages": messages, **body}}


def completion(*texts: str, **more: Any) -> dict[str, Any]:
    """A response of a server's interface with these choices."""
    body = openai_batch_line("q", *texts)["response"]["body"]
    return {"id": "chatcmpl-1", **body, **more}


def eee_line(name: str, text: str, score: float, **more: Any) -> dict[str, Any]:
    """A line of Every Eval Ever: an answer with its score."""
    return {
        "schema_version": "0.3.0",
        "evaluation_id": "lethe-suite/m/1",
        "model_id": "m",
        "evaluation_name": "leak",
        "evaluation_result_id": "leak/sampled",
        "sample_id": name,
        "interaction_type": "single_turn",
        "input": {"raw": "Who?", "reference": ["Ron"]},
        "output": {"raw": [text]},
        "evaluation": {"score": score, "is_correct": score == 1},
        **more,
    }


def eee_log(path: Path, rows: list[dict[str, Any]], **settings: Any) -> Path:
    """A run of Every Eval Ever: the lines, and the aggregate beside them."""
    result = {"evaluation_name": "leak", "generation_config": {"generation_args": settings}}
    aggregate = {"schema_version": "0.3.0", "evaluation_results": [result]}
    write_json(path.with_name(path.name.replace("_samples.jsonl", ".json")), aggregate)
    return write_lines(path, rows)


def deepeval_case(name: str, text: str | None, score: float, **more: Any) -> dict[str, Any]:
    """A test case of deepeval with one metric."""
    metric = {"name": "Leak [GEval]", "threshold": 0.5, "success": score >= 0.5, "score": score}
    case = {"name": name, "input": "Who?", "actualOutput": text, "success": score >= 0.5}
    return {**case, "metricsData": [metric], **more}


def small(kind: str, folder: Path) -> Path:
    """A whole small log of the kind, two prompts with two answers where the format has several."""
    path = folder / f"{kind}.log"
    if kind == "eval":
        samples = [sample(name, epoch) for epoch in (1, 2) for name in ("q", 7)]
        return eval_log(path, header(["q", 7]), samples)
    if kind == "inspect-json":
        samples = [sample(name, epoch) for epoch in (1, 2) for name in ("q", 7)]
        return write_json(path, header(["q", 7]) | {"samples": samples})
    if kind == "lm-eval":
        lines = [
            lm_eval_line(0, [" Ron", " Harry"], exact_match=1.0),
            lm_eval_line(4, ["a", "b"], exact_match=0.0),
        ]
        return write_lines(path, lines)
    if kind == "leak-k":
        return write_lines(path, [leak_k_line("Ron", "Harry"), leak_k_line("a", "b")])
    if kind == "open-unlearning":
        rows = {
            str(n): {
                "rougeL_recall": 0.5,
                "input": "Who?",
                "ground_truth": "Ron",
                "generation": "a",
            }
            for n in (0, 1)
        }
        quality = {"agg_value": None}
        return write_json(
            path,
            {
                "forget_Q_A_ROUGE": {"agg_value": 0.5, "value_by_index": rows},
                "forget_quality": quality,
            },
        )
    if kind == "harmbench":
        answers = [
            {"test_case": "Who?", "generation": text, "label": label}
            for text, label in (("a", 1), ("b", -1))
        ]
        return write_json(path, {"who": answers, "where": answers})
    if kind == "helm":
        return helm_log(path, [["Ron", "Harry"], ["a", "b"]])
    if kind == "garak":
        attempts = [garak_attempt(seq, ["a", "b"], {"dan.DAN": [1.0, 0.0]}) for seq in (0, 1)]
        return garak_log(path, [*attempts[0], *attempts[1], garak_eval("dan.DAN", 2, 2, 0)], seed=3)
    if kind == "promptfoo":
        return promptfoo_log(path, [promptfoo_row(test, "Paris") for test in (1, 0, 3, 2)])
    if kind == "promptfoo-lines":
        return write_lines(path, [promptfoo_row(test, "Paris") for test in (1, 0, 3, 2)])
    if kind == "openai-batch":
        return write_lines(path, [openai_batch_line(name, "Ron", "Harry") for name in "ab"])
    if kind == "every-eval-ever":
        return write_lines(
            path, [eee_line(name, text, 0.0) for name in "ab" for text in ("Ron", "x")]
        )
    if kind == "deepeval":
        cases = [
            deepeval_case(f"test_case_{n}", "Ron", n / 4, input=f"Who {n % 2}?") for n in range(4)
        ]
        return write_json(path, {"testFile": "t.py", "testCases": cases})
    if kind == "completions":
        return write_json(path, [completion("Ron", "Harry", prompt_id=name) for name in "ab"])
    if kind == "responses":
        rows = [{"question": name, "responses": ["Ron", "x"], "leaks": [1, 0]} for name in "ab"]
        return write_json(path, rows)
    if kind == "table":
        rows = [
            {"prompt_id": name, "sample": sample, "text": "Ron"}
            for name in "ab"
            for sample in (0, 1)
        ]
        return write_lines(path, rows)
    rows = [
        {"index": 0, "behavior": "A", "prompt": "Who?", "response": "Ron", "jailbroken": True},
        {"index": 1, "behavior": "B", "prompt": None, "response": None, "jailbroken": False},
    ]
    return write_json(path, {"parameters": {"model": "m"}, "jailbreaks": rows})


KINDS = (
    *(
        "eval",
        "inspect-json",
        "lm-eval",
        "leak-k",
        "open-unlearning",
        "harmbench",
        "jailbreakbench",
        "garak",
    ),
    *("promptfoo", "promptfoo-lines", "helm", "openai-batch", "table"),
    *("every-eval-ever", "deepeval", "completions", "responses"),
)
FORMATS = {kind: kind for kind in KINDS} | {
    "eval": "inspect",
    "inspect-json": "inspect",
    "promptfoo-lines": "promptfoo",
}
