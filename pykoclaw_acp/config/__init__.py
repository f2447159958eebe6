"""Settings: `PYKOCLAW_*` from the environment, then `./.env`, then `~/.local/share/pykoclaw/.env`,
then defaults.

`./.env` is read only in a trusted directory. An empty value is the same as none. Other programs'
settings in the files are ignored.
"""
