"""The model of one Spark run: driver time, job groups, stages, and their replay on other slots."""
