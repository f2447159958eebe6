"""Models that the SDK's import defines: built when they are first used, and others at once."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from pykoclaw_acp.worker.deferred_models import deferred_models


def test_models_defined_meanwhile_are_built_when_used() -> None:
    with deferred_models():

        class Late(BaseModel):
            number: int

    class Early(BaseModel):
        late: int

    assert Early.__pydantic_complete__
    assert not Late.__pydantic_complete__
    assert Late(number=1).model_dump() == {"number": 1}
    with pytest.raises(ValidationError):
        Late.model_validate({"number": "one"})
    assert Late.__pydantic_complete__


def test_an_import_that_fails_defers_nothing_later() -> None:
    with pytest.raises(ImportError), deferred_models():
        raise ImportError

    class Early(BaseModel):
        number: int

    assert Early.__pydantic_complete__


def test_imports_that_overlap_defer_nothing_later() -> None:
    one, other = deferred_models(), deferred_models()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)

    class Late(BaseModel):
        number: int

    other.__exit__(None, None, None)

    class Early(BaseModel):
        number: int

    assert not Late.__pydantic_complete__
    assert Early.__pydantic_complete__
