"""What is special about clients."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from pykoclaw_acp.model import choices, client_traits
from pykoclaw_acp.protocol import projection


def test_client_name_lookup_ignores_case() -> None:
    assert client_traits.find("Mitto", "1.2") is client_traits.MITTO
    unnamed = client_traits.find(None)  # Mitto does not always give its name
    assert unnamed == replace(
        client_traits.MITTO, shows_errors=False, drops_replay=False, progress_pause=5.0
    )
    assert client_traits.find("helix", "0.1") is client_traits.DEFAULT


def test_only_clients_looking_there_get_legacy_models() -> None:
    selection = choices.selection(choices.Chosen("plan", "default"), None, bypass=False)
    said = msgspec.to_builtins(projection.state(selection, legacy_models=True))
    assert said["modes"]["currentModeId"] == "plan"
    assert said["models"]["currentModelId"] == "default"
    del said["models"]
    assert msgspec.to_builtins(projection.state(selection, legacy_models=False)) == said
    assert client_traits.MITTO.legacy_models
    assert not client_traits.DEFAULT.legacy_models
