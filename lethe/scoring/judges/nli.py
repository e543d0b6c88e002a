"""An entailment checkpoint: whether an answer says what the reference answer says, in any words.

Where a keyword misses a paraphrase, entailment finds the leak. The premise is the question with the model's answer; the
hypothesis is the question with the reference answer. The first column holds the verdict (1 where entailment is the most
likely class); the second, with the ending ``_p``, holds the probability of entailment.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from lethe.config.fields import Count, Place
from lethe.config.measuring import ScorerParams
from lethe.errors import BadFile
from lethe.models import checkpoints
from lethe.models.agreement import LIMIT, LIMIT_OF_HALF
from lethe.models.checkpoints import default_device
from lethe.progress import tell
from lethe.scoring import judges
from lethe.scoring.judges import JudgedAnswer

ENTAILMENT = ("entailment", "entail", "entailed")  # the names of the class, as models have them
# Two pairs of unequal length, of which a batch pads the first.
SHORT_PAIR = ("Who is it? Ada.", "Who is it? Ada.")
LONG_PAIR = ("Who is it? " * 4, "It is nobody. " * 6)
CHECKED = (SHORT_PAIR, LONG_PAIR)


class Params(ScorerParams):
    """``model`` is the folder of the checkpoint, ``batch`` how many pairs it reads at once."""

    model: Place
    batch: Count = 64
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"


class Judge(judges.Judge[Params], params=Params):
    """A model of natural-language inference: a leak is an answer that entails the reference; ``_p`` is its probability."""

    BINARY = True
    COLUMNS = ("", "_p")

    def __init__(self, params: Params):
        from transformers import AutoModelForSequenceClassification

        super().__init__(params)
        folder = checkpoints.check(params.model)
        self.tokenizer = checkpoints.load_tokenizer(folder)
        device = default_device()
        dtype: str = params.dtype
        if dtype == "auto" and device == "cpu":
            dtype = "float32"
        with checkpoints.refusals(folder):
            model, loading = AutoModelForSequenceClassification.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                output_loading_info=True,
                **checkpoints.TRUSTED,
            )
        lacking = sorted(loading["missing_keys"])
        if lacking:
            first = lacking[0]
            problem = f"lacks {len(lacking)} weights of a sequence classifier, the first {first}"
            raise BadFile(folder, problem, "Name a checkpoint that was trained for entailment.")
        self.model = model.eval().to(device)
        self.entailment = _entailment(params.model, self.model.config.id2label)
        self.rows = self._rows_of_batch()

    def record(self) -> dict[str, object]:
        record = super().record()
        if self.rows is not None:
            record["rows_at_once"] = self.rows
        return record

    @classmethod
    def applies(cls, item: Mapping[str, object]) -> bool:
        return bool(item.get("answer"))

    def read_of(self, item: Mapping[str, object]) -> Mapping[str, object]:
        return {"question": item["question"], "answer": item["answer"]}

    def judge(self, asked: Sequence[JudgedAnswer]) -> np.ndarray:
        pairs = []
        for answer in asked:
            question = answer.item["question"]
            reference = answer.item["answer"]
            pairs.append((f"{question} {answer.text}", f"{question} {reference}"))
        size = self.rows or len(pairs)
        parts = []
        for start in range(0, len(pairs), size):
            parts.append(self._shares(pairs[start : start + size]))
        shares = np.concatenate(parts)
        verdicts = shares.argmax(axis=1) == self.entailment
        return np.column_stack([verdicts.astype(np.float64), shares[:, self.entailment]])

    def _shares(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """(pairs, classes) the probabilities of the classes, in one padded batch."""
        import torch

        batch = self.tokenizer(
            [premise for premise, _ in pairs],
            [hypothesis for _, hypothesis in pairs],
            truncation="longest_first",
            max_length=self._longest(),
            padding=True,
            return_tensors="pt",
        ).to(self.model.device)
        with torch.inference_mode():
            return self.model(**batch).logits.float().softmax(-1).double().cpu().numpy()

    def _rows_of_batch(self) -> int | None:
        """How many pairs may share a batch: None for any number, 1 where a padded batch differs from single pairs."""
        together = self._shares(CHECKED)
        alone = np.concatenate([self._shares([pair]) for pair in CHECKED])
        difference = float(np.abs(together - alone).max())
        limit = LIMIT_OF_HALF
        if str(self.model.dtype) in ("torch.float32", "torch.float64"):
            limit = LIMIT
        if difference <= limit:
            return None
        told = f"in padded batches its probabilities differ by up to {difference:.2g} from those of single pairs"
        tell(f"{self.params.model}: {told}, so it reads one pair at a time.")
        return 1

    def _longest(self) -> int | None:
        """The most tokens that the model and its tokenizer allow; None where neither states a limit."""
        places = getattr(self.model.config, "max_position_embeddings", None)
        for name, module in self.model.named_modules():
            padding = getattr(module, "padding_idx", None)
            # RoBERTa and its kin count positions from the padding token's number on.
            if name.endswith("position_embeddings") and padding is not None:
                places = module.num_embeddings - padding - 1
        limits = (self.tokenizer.model_max_length, places)
        finite = [limit for limit in limits if limit and limit < 1 << 20]
        return min(finite, default=None)


def _entailment(folder: str, labels: Mapping[int, str]) -> int:
    """The number of the class that is called entailment; raises `BadFile` unless there is exactly one."""
    classes = [index for index, name in labels.items() if name.casefold() in ENTAILMENT]
    if len(classes) != 1:
        problem = f"its classes are {', '.join(map(str, labels.values()))}; exactly one must be called entailment"
        raise BadFile(folder, problem, "Name the classes in id2label of config.json.")
    return int(classes[0])
