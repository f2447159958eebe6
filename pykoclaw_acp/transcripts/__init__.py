"""Claude's transcripts, which other programs continue: found, read in a process of its own, imported
into the log, and watched.
"""
