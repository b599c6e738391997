"""The README of an exported model: what it is, what it was trained on, what it scored, and where all of it is from."""

from collections.abc import Sequence

import yaml

from infuser_core.config import FolderAnchor, HubAnchor
from infuser_core.model_facts import ModelFacts

_ROLES = {
    "solver": "answers questions by reasoning step by step",
    "generator": "writes questions with reference answers from passages of textbooks",
}


def card(facts: ModelFacts) -> str:
    """Markdown with a metadata block on top."""
    parts = [_metadata(facts), _opening(facts), _usage(facts), _scores(facts), _training(facts), _textbooks(facts)]
    return "\n\n".join([*(part for part in parts if part), _provenance(facts)]) + "\n"


def _metadata(facts: ModelFacts) -> str:
    values = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["infuser", facts.role, "reinforcement-learning"],
        "license": "other",
        "license_name": "see-base-model",
    }
    if isinstance(facts.config.anchor, HubAnchor):
        values["base_model"] = facts.config.anchor.repo
    return f"---\n{yaml.safe_dump(values, sort_keys=False)}---"


def _opening(facts: ModelFacts) -> str:
    trained = f"after {facts.iteration} iterations of co-training" if facts.iteration else "before any training"
    return (
        f"# {facts.run}, {facts.role} after iteration {facts.iteration}\n\n"
        f"The {facts.role} of run `{facts.run}` {trained}: it {_ROLES[facts.role]}. It starts from {_base(facts)}. "
        "Its licence is that of the base model; the textbooks behind the training questions have their own, below."
    )


def _base(facts: ModelFacts) -> str:
    anchor = facts.config.anchor
    if isinstance(anchor, HubAnchor):
        return f"`{anchor.repo}` at revision `{anchor.revision}`"
    if isinstance(anchor, FolderAnchor):
        return "a local model folder, told by its digest below"
    return f"the nano lab's anchor (world {anchor.world}), a tiny model for experiments"


def _usage(facts: ModelFacts) -> str:
    sampling = "the evaluation" if facts.role == "solver" else "training"
    return (
        "## Use\n\n```python\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'folder = "."  # this folder\n'
        "tokenizer = AutoTokenizer.from_pretrained(folder)\n"
        f'model = AutoModelForCausalLM.from_pretrained(folder, dtype="{facts.config.engine.dtype}")\n'
        'messages = [{"role": "user", "content": "..."}]\n'
        "inputs = tokenizer.apply_chat_template(\n"
        '    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True\n'
        ")\n"
        "print(tokenizer.decode(model.generate(**inputs)[0]))\n"
        f"```\n\nTraining used the prompt profile `{facts.config.prompts}`. The generation config holds the sampling "
        f"of {sampling}; `do_sample=False` is greedy."
    )


def _scores(facts: ModelFacts) -> str:
    if not facts.scores:
        return ""
    rows = [
        [
            f"{score.benchmark} (checkpoints are selected by it)" if score.is_selection else score.benchmark,
            f"{score.accuracy:.4f}",
            f"[{score.low:.4f}, {score.high:.4f}]",
            str(score.questions),
        ]
        for score in facts.scores
    ]
    return "## Scores\n\n" + _table(["benchmark", "accuracy", "95% interval", "questions"], rows)


def _training(facts: ModelFacts) -> str:
    done, cotrain = facts.training, facts.config.cotrain
    if not done.updates:
        return "## Training\n\nNone: these are the weights of the base model."
    role = cotrain.solver if facts.role == "solver" else cotrain.generator
    rows = [
        ["updates", f"{done.updates} ({done.steps} optimizer steps, {done.tokens} tokens)"],
        ["generated questions read", str(done.questions)],
        ["learning rate", f"{role.learning_rate:g}"],
        ["advantage", role.advantage],
        ["generator's reward", cotrain.reward.name if cotrain.generator.update else "none: it was not trained"],
        ["seed", str(facts.config.seed)],
    ]
    where = "answers to the reference questions alone" if cotrain.dev_only else "questions written from textbooks"
    return f"## Training\n\nReinforcement learning on {where}.\n\n" + _table(["fact", "value"], rows)


def _textbooks(facts: ModelFacts) -> str:
    if not facts.sources:
        return ""
    licences = ", ".join(f"{licence} ({count})" for licence, count in facts.licences.items())
    rows = [
        [source.title, source.author, source.licence or "not stated", source.source_url or source.source_id]
        for source in sorted(facts.sources, key=lambda source: source.source_id)
    ]
    head = f"## Textbooks\n\nThe corpus of the run has {len(facts.sources)} textbooks; licences: {licences}.\n\n"
    return head + _table(["title", "author", "licence", "address"], rows)


def _provenance(facts: ModelFacts) -> str:
    rows = [
        ["checkpoint", facts.checkpoint_id],
        ["anchor", facts.anchor_id],
        ["base model's files", facts.anchor_digest],
        ["settings", facts.config_digest],
        *([name, digest] for name, digest in facts.files.items()),
    ]
    cells = [[name, f"`{value}`"] for name, value in rows]
    table = _table(["what", "identity or sha256"], cells)
    return f"## Provenance\n\n{table}\n\n`infuser why {facts.checkpoint_id}` tells more."


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: str) -> str:
    return " ".join(value.replace("|", "\\|").split())
