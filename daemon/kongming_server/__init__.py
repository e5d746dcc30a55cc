"""The server: it holds what the agents report, trains, and answers what schedulers ask."""
