"""The members of the studies, one module each."""

from lethe.registry import Registry

KNOWLEDGE = Registry("knowledge number", "knowledge", ("studies.meta_evaluation.knowledge",))
