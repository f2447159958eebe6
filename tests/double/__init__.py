"""A double of the programs that share our database: pykoclaw's scheduler, WhatsApp bot, `send` and
tools, and the ACP plugin that was there before ours (`original`).

It is written from observations of those programs and shares no code with ours: its own SQLite, in
Python's default transaction mode, its own statements, no retries. Where the real programs are
wrong, it is wrong in the same way.

**As processes**, which is how it should be used beside a daemon of ours (`roles.py`)::

    async with Role.started(stack.data, stack.environment, "scheduler", "--every", "0.05") as other:
        await other.until("enqueued", conversation="acp-12345678")
        other.kill()                      # SIGKILL, between any two statements
    assert other.failures() == []         # a lock of more than 5 s is one

A role appends what it has committed to a record file, one JSON object a line: `Role.entries()`. An
entry is written after its commit, so each entry must be found in the database. By hand:
`python -m tests.double <role> --data DIRECTORY`, `--help` for the rest:

    scheduler   the loop of `pykoclaw scheduler`; `--every` instead of 60 s
    dispatch    one turn as a channel runs it: `dispatch wa-andy-1@g.us "text"`; `--loop` for more
    send        `pykoclaw send`: always a blank session, result enqueued under `send-cli`
    poller      WhatsApp's delivery loop; `--every` instead of 10 s
    whatsapp    messages of a chat, then a dispatch, as the bot does it
    tool        one tool call: `tool acp-12345678 schedule_task '{"prompt": ...}'`
    init        what each start of each command does
    hold        keep the write lock for `--seconds`
    probe       take the write lock again and again, and record how long it had to wait for it
    original    the earlier plugin's `pykoclaw acp` on stdin and stdout
    healthcheck the earlier plugin's healthcheck of the command after `--`

Turns are canned (`--text`), with a new session id unless one is resumed, or run the real CLI
(`--claude`; the environment then leads to the scripted model, as that of `Stack` does).

**As classes**, for single statements in the process of a test: `handle.init_db`, the functions of
`tables`, `rules`, `scheduler.run_task`, `messaging.dispatch_to_agent`. There the double uses the
SQLite of the test's process (`sqlite.py`), as two engines in one process drop each other's locks.

**Files** of each age are made by `files.py`, and a `pykoclaw` distribution that can be put on
PYTHONPATH, with plugins that fail, print, hang or hold the database, by `installed.py`.
"""
