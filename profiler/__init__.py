"""The command line: `adaptive-eager`, also `python -m adaptive_eager.profiler`. One file per command."""
