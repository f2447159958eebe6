"""What an operator may decide on a permission request. It imports the standard library only: commands
start with it.
"""

from __future__ import annotations

from typing import Literal

OperatorDecision = Literal["allow_once", "allow_always", "allow_lasting", "allow_former", "deny"]
