"""Influence scores and DuGRPO in TRL: `pip install trl==1.16.0 && python examples/with_trl/score_grpo.py`.

A solver takes two GRPO steps on eq:unified_obj (`dr_grpo`), then a generator one. Its questions are scored with TRL's
own model and AdamW state. Their reward is DuGRPO's advantage: its mean is 0, so `scale_rewards="none"` keeps it.
"""

import json

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from infuser_core.algorithm.advantage import dugrpo_advantages
from infuser_core.algorithm.influence import influence_score
from infuser_core.nano.lab import anchor_path, draw_questions
from infuser_core.prompts.templates import render_question

NANO, N, TURN = anchor_path("hard"), 4, "<|user|>{}<|end|><|assistant|>"
PAGE = "Write a question:\nThe circuit Wina drives {} amps through 8 ohms. The tank Osta holds 21 and leaks 8 litres."


def problem(text, choices, key):
    box = f"\\boxed{{{dict(zip(choices, 'ABCD', strict=True)).get(key)}}}"
    return {"prompt": TURN.format(render_question(f"Solve:\n{text}", choices)), "box": box}


def grpo(rows, reward, tokens, steps):
    sizes = {"per_device_train_batch_size": N * len(rows), "max_completion_length": tokens, "max_steps": steps}
    options = {"loss_type": "dr_grpo", "scale_rewards": "none", "num_generations": N, "bf16": False, "report_to": []}
    return GRPOTrainer(str(NANO), reward, GRPOConfig("build/trl", **sizes, **options), Dataset.from_list(rows))


def gradients(batch, start=0, end=None):
    group = {name: values[start:end] for name, values in batch.items() if values.dim()}
    return torch.autograd.grad(solver.compute_loss(solver.model, group), [*solver.model.parameters()])


def influences(batch, dev_batch):
    references, parameters = gradients(dev_batch), [*solver.model.parameters()]
    groups = (gradients(batch, start, start + N) for start in range(0, len(batch["advantages"]), N))
    return [influence_score(group, references, parameters, solver.optimizer) for group in groups]


def dugrpo(completions, page, **_):
    # A key that is no choice is never right, and scores 0.
    questions = [problem(q["question_text"], q["choices"], q["ground_truth"]) for q in map(json.loads, completions)]
    solver.model.eval()  # In training, TRL shuffles the answers.
    batches = (solver._prepare_inputs([row for row in rows for _ in range(N)]) for rows in (questions, dev))
    scores = influences(*batches)
    print("influence", *(f"{score:+.3f}" for score in scores))
    return dugrpo_advantages(scores, page)


draws = (draw_questions("target", split, 12, 42, "hard") for split in ("train", "dev"))
train, dev = ([problem(each.text, each.choices, each.choices["ABCD".index(each.answer)]) for each in d] for d in draws)
solver = grpo(train, lambda completions, box, **_: map(str.endswith, completions, box), tokens=24, steps=2)
solver.train()
generator = grpo([{"prompt": TURN.format(PAGE.format(n)), "page": n} for n in (4, 5, 6)], dugrpo, tokens=64, steps=1)
generator.train()
