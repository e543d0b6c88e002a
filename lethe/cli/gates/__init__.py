"""Gates: whether a command ends with status 1, by what its numbers show; each kind of numbers has a module."""
