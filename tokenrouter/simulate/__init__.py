"""A plan under an arrival process, by discrete events: queues, latencies and speeds for capacities that are not here."""
