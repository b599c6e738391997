"""Parts shared by benchmarks: their description, readers of data sets, the validation sample."""
