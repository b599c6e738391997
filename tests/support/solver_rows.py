"""Questions and answers as rows, for tests of what is made of them."""

from collections.abc import Sequence
from pathlib import Path

from infuser_core.schemas import Checkpoint, Question, Rollout, Verdict


def anchor(folder: Path, *, role: str = "solver") -> Checkpoint:
    """The anchor that lies in a test's folder."""
    return Checkpoint(checkpoint_id="a", role=role, path=str(folder / "anchor"), step=0)


def question(name: str, *, answer: str = "7", verifier: str = "integer", generated: bool = True) -> Question:
    return Question(
        question_id=name, text="?", choices=["1", "2", "3", "4"] if verifier == "choice" else [], answer=answer,
        verifier=verifier, domain="", subdomain="", document_id=f"d-{name}",
        rollout_id=f"w-{name}" if generated else "", reasoning="",
    )  # fmt: skip


def answers(name: str, texts: Sequence[str], *, correct: Sequence[bool] = ()) -> list[Rollout]:
    """One row per text, judged as `correct` says; wrong without it."""
    right = list(correct) or [False] * len(texts)
    return [
        Rollout(
            rollout_id=f"{name}/{index}", group_id=name, sample_index=index, role="solver", checkpoint_id="c",
            prompt_token_ids=[1, 2], token_ids=[3 + index, 9], sampler_logprobs=[-2.7, -2.7], text=text,
            finish_reason="stop", verdict=Verdict.CORRECT if won else Verdict.WRONG, reward=float(won),
            malformed_reason="",
        )
        for index, (text, won) in enumerate(zip(texts, right, strict=True))
    ]  # fmt: skip
