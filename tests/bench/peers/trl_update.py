"""GRPO update of TRL on given tokens: run in an environment that holds TRL, told by lines on its standard input.

`python trl_update.py MODEL WORK`: MODEL is a model folder, WORK a JSON file of groups. Every line `ROWS` makes one
update with micro-batches of so many rows and prints its CPU seconds and the gradient's norm.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer


def main(folder: str, work: str) -> None:
    """Answer lines until there are no more."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    given = json.loads(Path(work).read_text())
    rows = [(group["prompt"], *row) for group in given["groups"] for row in group["rows"]]
    with tempfile.TemporaryDirectory() as out:
        trainer = _trainer(folder, out, given)
        model = trainer.model.train()
        adamw = torch.optim.AdamW(model.parameters(), lr=0.0)
        print("ready", flush=True)
        for line in sys.stdin:
            start = time.process_time()
            norm = _update(trainer, model, adamw, rows, int(line))
            print(json.dumps({"seconds": time.process_time() - start, "norm": norm}), flush=True)


def _trainer(folder: str, out: str, given: dict) -> GRPOTrainer:
    options = GRPOConfig(
        output_dir=out,
        per_device_train_batch_size=8,
        num_generations=8,
        loss_type="dr_grpo",
        beta=0.0,
        temperature=given["temperature"],
        max_completion_length=int(given["length_norm"]),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
    )
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=options,
        train_dataset=Dataset.from_list([{"prompt": "none"}] * 8),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )


def _update(trainer: GRPOTrainer, model: torch.nn.Module, adamw: torch.optim.AdamW, rows: list, size: int) -> float:
    adamw.zero_grad()
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    trainer.current_gradient_accumulation_steps = len(parts)
    for part in parts:
        trainer.compute_loss(model, _inputs(part)).backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    adamw.step()
    return norm


def _inputs(rows: list) -> dict[str, torch.Tensor]:
    """Prompts padded on the left, answers on the right, as the trainer's own collation does."""
    wide, long = max(len(prompt) for prompt, _, _ in rows), max(len(answer) for _, answer, _ in rows)
    return {
        "prompt_ids": torch.tensor([[0] * (wide - len(prompt)) + prompt for prompt, _, _ in rows]),
        "prompt_mask": torch.tensor([[0] * (wide - len(prompt)) + [1] * len(prompt) for prompt, _, _ in rows]),
        "completion_ids": torch.tensor([answer + [0] * (long - len(answer)) for _, answer, _ in rows]),
        "completion_mask": torch.tensor([[1] * len(answer) + [0] * (long - len(answer)) for _, answer, _ in rows]),
        "advantages": torch.tensor([advantage for _, _, advantage in rows]),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
