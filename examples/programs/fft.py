"""Fourier transforms there and back of a long signal. fft.py LOG2_LENGTH TIMES."""

from __future__ import annotations

import sys

import numpy as np


def main() -> None:
    length, times = 1 << int(sys.argv[1]), int(sys.argv[2])
    signal = np.random.default_rng(3).standard_normal(length)
    back = signal
    for _ in range(times):
        back = np.fft.irfft(np.fft.rfft(back), length)
    print("signal kept" if np.allclose(signal, back) else "signal lost")


main()
