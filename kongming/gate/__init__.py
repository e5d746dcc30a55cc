"""Fitness of this machine to measure on: noise, disturbances, and the repetitions that an effect
needs.

Needs nothing but what ``pip install kongming`` brings: no numpy.
"""
