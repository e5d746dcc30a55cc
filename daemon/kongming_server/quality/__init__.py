"""Model quality: drift, backtests, acceptance of new versions, calibration of intervals."""
