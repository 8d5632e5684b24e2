"""Configs of the commands: schema, checks and Hydra's command line. Imports nothing of ours but error types."""
