"""Random examples: a few of each kind in every run, many in `make test-long`."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("short", max_examples=30)
settings.register_profile("long", max_examples=500)
settings.load_profile("long" if os.environ.get("PYKOCLAW_TEST_LONG") == "1" else "short")
