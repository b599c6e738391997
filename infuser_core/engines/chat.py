"""A chat model made of a sampler: greedy replies to chat turns."""

from collections.abc import Sequence

from infuser_core.engines.protocols import Messages, Progress, PromptGroup, Sampler, SamplingParams, no_progress


class SamplerChat:
    """protocols.ChatModel over a loaded sampler."""

    def __init__(self, sampler: Sampler, *, name: str) -> None:
        self._sampler = sampler
        self._name = name

    @property
    def name(self) -> str:
        """What the report shows."""
        return self._name

    def complete(self, prompts: Sequence[Messages], *, max_tokens: int, progress: Progress = no_progress) -> list[str]:
        """One greedy reply per prompt."""
        tokenizer = self._sampler.tokenizer
        groups = [
            PromptGroup(group_id=f"chat/{place}", token_ids=tokenizer.render(messages), seeds=[0])
            for place, messages in enumerate(prompts)
        ]
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens)
        completions = self._sampler.sample(groups, params, progress=progress)
        return [tokenizer.decode(samples[0].token_ids) for samples in completions]
