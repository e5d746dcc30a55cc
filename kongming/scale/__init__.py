"""Scale models: the runtime of a job as a function of its input and its machines (Ernest).

``fit.fitting.fit_runs(runs, Settings(read_terms("default", items=None)))`` fits a model; its
``predict`` returns the runtime on idle machines, and ``decide.combination.combine`` the runtime on
loaded machines. Modules are imported one by one, so that running experiments does not load the
solvers.
"""
