"""The server: stores the reports of agents, trains models, and answers schedulers."""
