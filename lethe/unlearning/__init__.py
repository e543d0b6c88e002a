# Measures points along unlearning. The stage loads it by its name, where any are measured: an import would have each edit of
# an engine or a scorer unlearn again everywhere.
ALONG = "lethe.steps.trajectory"
