"""The shadow-model attack of Shokri et al. (2017): one attack network per class separates members from non-members.

The input of a network is the sorted vector of log-probabilities and the log-probability of the correct class. The labels
come from the shadow models, whose training sets are known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lethe.audits.unlearning_game.adversaries import Shadow, ThresholdAttack
from studies.image_game.attacks import View, confidence

FLOOR = -15.0  # lower log-probabilities add no information and would dominate the network's input


class ShadowAttack:
    """One attack network per class, trained on the shadow models."""

    def __init__(self, shadows: Sequence[Shadow[View]], seed: int):
        import warnings

        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        views = [view for shadow in shadows for view in (shadow.members, shadow.nonmembers)]
        answers = np.concatenate([np.full(len(view.labels), i % 2 == 0, float) for i, view in enumerate(views)])
        inputs = np.concatenate([_inputs(view) for view in views])
        labels = np.concatenate([view.labels for view in views])
        self.networks = {}
        warnings.filterwarnings("ignore", category=ConvergenceWarning)  # 200 epochs are enough here
        for label in np.unique(labels).tolist():
            of_class = labels == label
            if len(np.unique(answers[of_class])) == 2:
                network = make_pipeline(StandardScaler(), MLPClassifier((64,), alpha=1e-2, random_state=seed))
                self.networks[label] = network.fit(inputs[of_class], answers[of_class])

    def score(self, view: View) -> np.ndarray:
        """Return the probability that the point was learned; 1/2 for a class that lacks members or non-members."""
        inputs, scores = _inputs(view), np.full(len(view.labels), 0.5)
        for label, network in self.networks.items():
            rows = view.labels == label
            if rows.any():
                scores[rows] = network.predict_proba(inputs[rows])[:, 1]
        return scores


def _inputs(view: View) -> np.ndarray:
    of_label = confidence.score(view)[:, None]
    return np.maximum(np.hstack([np.sort(view.log_probabilities, axis=1)[:, ::-1], of_label]), FLOOR)


def fit(shadows: Sequence[Shadow[View]], seed: int) -> ThresholdAttack[View]:
    """Fit the attack on the shadow models."""
    return ThresholdAttack(ShadowAttack(shadows, seed).score, shadows)
