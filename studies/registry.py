"""The members of the studies, one module each."""

from lethe.registry import Registry

DEFENDERS = Registry("defender", "defenders", ("studies.image_game.unlearning",))
ATTACKS = Registry("attack", "attacks", ("studies.image_game.attacks",))
KNOWLEDGE = Registry("knowledge number", "knowledge", ("studies.meta_evaluation.knowledge",))
