"""Text to tokens and back through the tokenizer files of a checkpoint folder."""

from collections.abc import Sequence
from pathlib import Path

from transformers import AutoTokenizer

from infuser_core.engines.protocols import Messages
from infuser_core.errors import CheckpointError


class Renderer:
    """protocols.Tokenizer over a folder's tokenizer; prompts go through its chat template."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._folder = folder

    @property
    def end_token(self) -> int | None:
        """The tokenizer's own end-of-sequence token."""
        return self._tokenizer.eos_token_id

    def render(self, messages: Messages) -> list[int]:
        """Tokens of the chat turns with the assistant's header. Raises CheckpointError without a chat template."""
        if self._tokenizer.chat_template is None:
            raise CheckpointError(
                f"the tokenizer in {self._folder} has no chat template", hint="add chat_template.jinja to the folder"
            )
        # return_dict: transformers 5 returns a mapping by default.
        return list(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text, without special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text without special tokens, spaces as the tokens spell them."""
        return str(
            self._tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )
