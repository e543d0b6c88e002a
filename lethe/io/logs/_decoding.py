"""What settings say of decoding: that it was greedy, or that one answer was selected from several."""

import re
from collections.abc import Mapping

from lethe.io.cells import number_of_cell
from lethe.io.facts import YES

# How people write that no sampling was done, and that decoding was greedy.
OFF = ("false", "0", "0.0", "no", "n", "off")
DECODING = (
    *("decoding", "decoding_strategy", "decoding_method", "decode_strategy", "sampling"),
    *("sampling_method", "sampling_strategy", "generation_strategy"),
)
SAYS_GREEDY = ("greedy_decoding", "deterministic")
GREEDY_WORDS = re.compile(r"(greedy|argmax)([ _-]?(search|decoding|sampling))?")
LEAST_CHANCE = 1e-5  # vLLM takes the most likely token at temperatures below (`_SAMPLING_EPS`)


def greedy(settings: Mapping[str, object]) -> str | None:
    """Return the setting that makes decoding greedy, such as `temperature 0`; None where there is none."""
    if str(settings.get("do_sample")).strip().lower() in OFF:
        return f"do_sample {str(settings['do_sample']).strip().lower()}"
    for name in DECODING:
        if GREEDY_WORDS.fullmatch(str(settings.get(name)).strip().lower()):
            return f"{name} {settings[name]}"
    for name in SAYS_GREEDY:
        if str(settings.get(name)).strip().lower() in YES:
            return f"{name} {settings[name]}"
    for name in ("temperature", "top_p"):
        value = _setting(settings.get(name))
        if value is not None and 0 <= value < LEAST_CHANCE:
            return f"{name} {settings[name]}"
    if _setting(settings.get("top_k")) == 1:
        return f"top_k {settings['top_k']}"
    return None


def chosen(settings: Mapping[str, object]) -> list[str]:
    """Return a sentence for each setting that selects one answer from several, which is then no draw of the model."""
    sentences = []
    for name in ("best_of", "num_beams"):
        if (_setting(settings.get(name)) or 0) > 1:
            sentences.append(
                f"{name} {settings[name]}: an answer is the best of several, not one draw of the model"
            )
    return sentences


def _setting(value: object) -> float | None:
    """A setting as a number, as people write numbers in a table; None where it is none."""
    if isinstance(value, bool):
        return None
    return number_of_cell(value)
