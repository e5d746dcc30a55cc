"""Run applications under chosen loads and yield the measurements (paper, Algorithm 1).

``appfile`` reads applications, ``placement`` chooses CPUs, ``runner`` and ``service`` time an
application, ``load_loop`` keeps one running as a neighbour, ``plans`` determines the runs and
their order, and ``profiler`` executes them.
"""
