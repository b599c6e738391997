"""Memory that models take on given hardware, and sizes of tiles and batches: for engines and planner, without torch."""
