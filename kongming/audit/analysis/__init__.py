"""The statistics of an audit. ``document.analyse`` computes them all."""
