"""Attacks on an unlearned model: changes to its weights before the model is queried again."""
