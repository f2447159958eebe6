"""The stack of the end-to-end tests."""

from tests.e2e.conftest import model, stack

__all__ = ["model", "stack"]
