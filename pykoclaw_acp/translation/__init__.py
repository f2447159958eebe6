"""What Claude says and does, as events of a log: for what a worker streams, and for transcripts."""
