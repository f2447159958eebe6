"""Control methods of the daemon, `_pykoclaw.dev/…`, used by the command line: their parameters,
answers and notifications. Times are milliseconds since 1970, sizes bytes.

They may be called before `initialize`, by any connection that does not come from inside a session.
They are not part of ACP.
"""
