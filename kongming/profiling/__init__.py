"""Runs applications under chosen loads and yields what was measured (paper, Algorithm 1).

``appfile`` reads applications, ``placement`` chooses CPUs, ``runner`` and ``service`` time one
application, ``load_loop`` keeps one running as a neighbour, ``plans`` decides what to run next
and ``profiler`` carries it out.
"""
