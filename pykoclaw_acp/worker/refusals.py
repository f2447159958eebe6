"""What the CLI, or the API through it, says of content that it does not take: a kind and a remedy.

The words were measured with CLI 2.1.327 (`tests/unit/test_refusals.py`); the statuses are 400 and
413 alike, or none at all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykoclaw_acp.error_kinds import ErrorKind


class Refusal(NamedTuple):
    """Why content was refused: a kind for programs, a sentence for people. `guessed`: the CLI's own
    words say more than is known.
    """

    kind: ErrorKind
    advice: str
    guessed: bool = False


TOO_LONG: Final = "The prompt is too long for the model. Shorten it, or use /compact first."
_TOO_LONG_ALONE: Final = "The prompt is too long for the model. Shorten it, or attach less."
_FULL: Final = "The context of the conversation is full. Use /compact, or begin a new conversation."
_HEAVY: Final = (
    "The request is larger than Claude's service takes: this prompt, or the conversation with its images and files."
    " Send less, use /compact, or begin a new conversation."
)
_CREDIT: Final = "Your credit balance is too low. Add credit in the Anthropic Console, then send the prompt again."
_IMAGE_LARGE: Final = "The model does not take an image of this size. Make it smaller."
_IMAGE_FOREIGN: Final = (
    "The model does not take images. Choose another model, or send the prompt without images."
)
_IMAGE_BROKEN: Final = "An image could not be read by the model. Send it again in another format."
_DOCUMENT: Final = (
    "The model does not take the PDF. Send fewer pages, without a password, or as text."
)
TOO_LARGE: Final = Refusal(ErrorKind.CONTEXT_TOO_LARGE, _HEAVY, guessed=True)
# In this order, the first that the words hold; all words of a line must be in them.
_KNOWN: Final[tuple[tuple[tuple[str, ...], Refusal], ...]] = (
    (
        ("prompt is too long", "cannot be compacted"),
        Refusal(ErrorKind.CONTEXT_TOO_LARGE, _TOO_LONG_ALONE),
    ),
    (("prompt is too long",), Refusal(ErrorKind.CONTEXT_TOO_LARGE, TOO_LONG)),
    # It blames images and attachments for every status 413, also where there are none (2.1.327).
    (("request too large", "attachments"), TOO_LARGE),
    (("exceed context limit",), Refusal(ErrorKind.CONTEXT_TOO_LARGE, _FULL)),
    (("credit balance is too low",), Refusal(ErrorKind.BILLING_ERROR, _CREDIT)),
    (("context limit reached",), Refusal(ErrorKind.CONTEXT_TOO_LARGE, _FULL)),
    (("pdf is password protected",), Refusal(ErrorKind.DOCUMENT_REFUSED, _DOCUMENT)),
    (("pdf too large",), Refusal(ErrorKind.DOCUMENT_REFUSED, _DOCUMENT)),
    (("pdf specified",), Refusal(ErrorKind.DOCUMENT_REFUSED, _DOCUMENT)),
    (("pdf file was not valid",), Refusal(ErrorKind.DOCUMENT_REFUSED, _DOCUMENT)),
    (("image was too large",), Refusal(ErrorKind.IMAGE_REFUSED, _IMAGE_LARGE)),
    (("image exceeds",), Refusal(ErrorKind.IMAGE_REFUSED, _IMAGE_LARGE)),
    (("image dimensions exceed",), Refusal(ErrorKind.IMAGE_REFUSED, _IMAGE_LARGE)),
    (("not support image",), Refusal(ErrorKind.IMAGE_REFUSED, _IMAGE_FOREIGN)),
    (("image", "could not be processed"), Refusal(ErrorKind.IMAGE_REFUSED, _IMAGE_BROKEN)),
    (("could not process image",), Refusal(ErrorKind.IMAGE_REFUSED, _IMAGE_BROKEN)),
    (("unable to", "image"), Refusal(ErrorKind.IMAGE_REFUSED, _IMAGE_BROKEN)),
)


def of(words: str) -> Refusal | None:
    """The refusal that the beginning of an error message tells of; None if it is another error."""
    said = words.lower()
    return next((refusal for known, refusal in _KNOWN if all(one in said for one in known)), None)
