"""What happens around training: run folder, checkpoints, progress, reports."""
