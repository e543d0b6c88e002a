"""Options that only a command line has, and what they do.

The hook of a function of `lethe.api` has the name of the function, in a module that has the name of its module. It calls the
public function and adds to its answer; its further parameters become options.
"""
