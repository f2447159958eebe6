"""An ACP agent that never loses a conversation. Importing the package imports nothing else."""

__version__ = "0.1.0"
