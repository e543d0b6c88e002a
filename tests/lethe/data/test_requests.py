"""The harmless stand-ins of the alignment preset, their splits, and the recipes of the two models that learn them."""

from types import SimpleNamespace

from lethe.data.kinds import requests

SIZES = {"requests": 6, "demonstrations": 40, "judgements": 80, "labelled": 30, "most_revealed": 0.5}


def splits(seed: int = 0, **sizes):
    params = requests.Params(**SIZES | sizes)
    return requests.load(SimpleNamespace(seed=seed, own=lambda model: params), None)


def test_the_codes_are_the_leaks():
    """An answer reveals the code of its place or it does not; refusals name numbers too, so a pattern is no judge."""
    found = splits()
    codes = {row["question"]: row["keywords"][0] for row in found["forget"]}
    for row in found["labelled"]:
        assert (codes[row["question"]] in row["text"]) == bool(row["label"])
    refusals = [row["text"] for row in found["labelled"] if not row["label"]]
    assert any(any(mark.isdigit() for mark in text) for text in refusals)
    assert [row["label"] for row in found["labelled"]].count(1) == 15


def test_the_labelled_wordings_are_partly_new_to_the_judge():
    trained = {template.split("{")[0] for template in requests.REVEALS + requests.REFUSES}
    new = {template.split("{")[0] for template in requests.NEW_REVEALS + requests.NEW_REFUSES}
    assert not trained & new
    texts = [row["text"] for row in splits(labelled=400)["labelled"]]
    assert any(text.startswith(tuple(new)) for text in texts)
    assert not any(row["context"].startswith(tuple(new)) for row in splits(judgements=400)["judgements"])
