"""Environment in which the real Claude CLI, and so the product, runs offline on the scripted model."""

from __future__ import annotations

from pathlib import Path

# The discard port: whatever leaves loopback fails at once instead of reaching the network.
_DEAD_PROXY = "http://127.0.0.1:9"
_LOOPBACK = "127.0.0.1,localhost,::1"


def offline_environment(url: str, home: Path) -> dict[str, str]:
    """Variables that make Claude use only `url` and write only below `home`.

    An empty value removes a setting of the user that would interfere.
    """
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-scripted",
        "ANTHROPIC_AUTH_TOKEN": "",
        "ANTHROPIC_CUSTOM_HEADERS": "",
        "CLAUDE_CODE_OAUTH_TOKEN": "",
        "CLAUDE_CODE_USE_BEDROCK": "",
        "CLAUDE_CODE_USE_FOUNDRY": "",
        "CLAUDE_CODE_USE_VERTEX": "",
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "CLAUDE_CODE_TMPDIR": str(home / "tmp"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_HARBOR_KITE": "0",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
        "HTTP_PROXY": _DEAD_PROXY,
        "HTTPS_PROXY": _DEAD_PROXY,
        "http_proxy": _DEAD_PROXY,
        "https_proxy": _DEAD_PROXY,
        "NO_PROXY": _LOOPBACK,
        "no_proxy": _LOOPBACK,
    }
