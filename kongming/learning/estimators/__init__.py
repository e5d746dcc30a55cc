"""Estimators, one file each: scikit-learn regressors of one application's slowdown."""
