"""What the schedulers' sides share: client of the server, ranking cache, log throttle."""
