"""`lethe meta-evaluation`: pools of models whose knowledge is known, every number of each, and what the numbers are worth.

`pool` lists the models, `workshop` makes and attacks them, `observing` asks them, `shards` is the unit of work of a flow,
`gathering` reads all finished shards, `costs` says beforehand what a run takes.
"""
