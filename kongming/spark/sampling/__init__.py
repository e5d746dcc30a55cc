"""Samples of data that keep its shape (Spark thesis, section 4.3), by a PySpark job."""
