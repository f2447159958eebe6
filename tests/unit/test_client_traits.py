"""What is special about clients."""

from __future__ import annotations

import msgspec

from pykoclaw_acp.model import choices, client_traits
from pykoclaw_acp.protocol import projection


def test_client_name_lookup_ignores_case() -> None:
    assert client_traits.find("Mitto", "1.2") is client_traits.MITTO
    assert client_traits.find(None) is client_traits.MITTO  # it does not always give its name
    assert client_traits.find("zed", "0.1") is client_traits.DEFAULT


def test_legacy_modes_and_models_only_for_legacy_clients() -> None:
    selection = choices.selection("plan", None, None, bypass=False)
    said = msgspec.to_builtins(projection.state(selection, legacy=True))
    assert said["modes"]["currentModeId"] == "plan"
    assert msgspec.to_builtins(projection.state(selection, legacy=False)) == {
        "configOptions": said["configOptions"]
    }
