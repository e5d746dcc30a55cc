"""Is this machine fit to measure on? Noise, disturbances, and the repetitions that an effect needs.

Needs nothing but what ``pip install kongming`` brings: no numpy.
"""
