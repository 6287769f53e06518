"""Commands beside those of LightningCLI; each takes an argument list and returns an exit status."""
