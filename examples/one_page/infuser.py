"""The whole method of INFUSER on one page: plain torch and transformers, trained on the nano lab.

    python examples/one_page/infuser.py 30         # iterations; prints the curve that `make quickstart` prints

A solver should get better at a target task, of which it has 12 dev questions with right keys, by training on questions
that a generator writes from textbooks; their keys may be wrong. Both start from one anchor and keep their own weights
and AdamW states. The generator is rewarded for questions on which a step moves the solver towards the dev set:

    s(q) = cos(g_dev, Gamma(g_q))    g_dev: gradient of the dev set    Gamma: AdamW's preconditioner of the solver

`co_train` is Algorithm 2 of the paper "INFUSER: Influence-Guided Self-Evolution Improves Reasoning"; comments have the
labels of its equations, which docs/method.md explains. In the lab the books teach many topics and the dev set asks
about a few of them, so that the generator has to find out which questions help.

A test compares all texts, scores and weights of two iterations with the parquet rows of `infuser run nano`: this page
and the pipeline are one method. Shapes: _B rows of a batch, _T tokens, _V vocabulary, _P all weights in one vector.
"""

import copy
import hashlib
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from infuser_core.nano.lab import anchor_path, draw_questions
from infuser_core.schemas import Question
from infuser_core.seeding import seed_of
from infuser_core.verifiers.parts.batch import Job, check_all

SEED, WORLD = 42, "hard"
DOCUMENTS, SAMPLES = 6, 4
"""B: documents per iteration. n: texts per document, and answers per question."""
QUESTION_TOKENS, ANSWER_TOKENS = 64, 24
"""Longest text of the generator and of the solver: C of eq:unified_obj."""
CLIP, TIS_CAP = 0.2, 2.0
"""epsilon and rho_max of eq:unified_obj."""
INVALID = 0.0
"""rho_inv: reward of a text that is not a question. A question that would lead away from the dev set earns less."""
GENERATOR_RATE, SOLVER_RATE, MINIBATCH = 3e-4, 1e-4, 12
BETA_1, BETA_2, EPSILON, DECAY, MAX_NORM = 0.9, 0.999, 1e-8, 0.01, 1.0
POOL = Path(__file__).with_name("documents.jsonl")
TOKENIZER = AutoTokenizer.from_pretrained(anchor_path(WORLD))
END = TOKENIZER.convert_tokens_to_ids("<|end|>")


@dataclass
class Player:
    """A model with the state of its AdamW optimizer."""

    model: Any
    first_P: Tensor
    second_P: Tensor
    steps: int = 0


@dataclass
class Row:
    """A sampled text."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    """Log-probabilities of the sampler, nats."""
    text: str = ""
    question_id: str = ""
    """Of the question that the text is; empty for none."""
    reward: float = 0.0
    advantage: float = 0.0
    old_T: Tensor | None = None
    """Log-probabilities before the solver's update; None for rows of a single step, whose policy is still the old."""


@dataclass
class Iteration:
    """What one iteration wrote, answered, scored and learned."""

    texts: dict[str, list[Row]]
    """The generator's texts by document."""
    questions: list[Question]
    answers: dict[str, list[Row]]
    """The solver's answers by question."""
    dev_answers: dict[str, list[Row]]
    scores: dict[str, float]
    """s(q) by question."""
    solver: Player
    generator: Player


# --- The algorithm ----------------------------------------------------------------------------------------------------


def co_train(pool: Sequence[dict[str, str]], iterations: int, anchor: Any) -> Iterator[Iteration]:
    """Algorithm 2. The solver is updated last: answers and scores are those of the solver before the iteration."""
    dev = draw_questions("target", "dev", 12, SEED, WORLD)
    zeros_P = torch.zeros_like(parameters_to_vector(anchor.parameters()).detach())
    solver, generator = (Player(copy.deepcopy(anchor), zeros_P.clone(), zeros_P.clone()) for _ in range(2))
    for iteration in range(iterations):
        # Phase 1: the gradient of the dev set (eq:hat_g_dev).
        dev_answers = answer_questions(solver.model, dev, f"rollout_dev/{iteration}")
        mean_centred([*dev_answers.values()])
        dev_gradient_P = gradient(solver.model, [*dev_answers.values()], ANSWER_TOKENS, len(dev))

        # Phase 2: questions from documents, and the solver's answers.
        texts, questions = write_questions(generator, draw_documents(pool, iteration), iteration)
        answers = answer_questions(solver.model, questions, f"rollout_questions/{iteration}")
        mean_centred([*answers.values()])

        # Phase 3: the influence of each question; 0 if all its answers are equally good.
        scores = {
            name: 0.0 if is_flat(rows) or not dev_gradient_P.any() else influence(solver, rows, dev_gradient_P)
            for name, rows in answers.items()
        }

        # Phase 4: the generator's update.
        for row in chain(*texts.values()):
            row.reward = scores.get(row.question_id, INVALID)
        dugrpo([*texts.values()])
        varied = [rows for rows in texts.values() if not is_flat(rows)]
        if varied:
            step(generator, gradient(generator.model, varied, QUESTION_TOKENS, len(varied)), GENERATOR_RATE)

        # Phase 5: the solver's update, in minibatches.
        order = mix_documents([question for question in questions if not is_flat(answers[question.question_id])])
        for name in order:
            with torch.no_grad():
                for row, old_T in zip(answers[name], logprobs(solver.model, answers[name]), strict=True):
                    row.old_T = old_T
        for start in range(0, len(order), MINIBATCH):
            batch = [answers[name] for name in order[start : start + MINIBATCH]]
            step(solver, gradient(solver.model, batch, ANSWER_TOKENS, len(batch)), SOLVER_RATE)
        yield Iteration(texts, questions, answers, dev_answers, scores, solver, generator)


def draw_documents(pool: Sequence[dict[str, str]], iteration: int) -> list[dict[str, str]]:
    """The iteration's documents: consecutive places of endless passes over the pool, each in its own order."""
    drawn: list[dict[str, str]] = []
    place = iteration * DOCUMENTS
    while len(drawn) < DOCUMENTS:
        order = list(range(len(pool)))
        random.Random(seed_of(SEED, "documents", place // len(pool))).shuffle(order)
        document = pool[order[place % len(pool)]]
        drawn += [] if document in drawn else [document]
        place += 1
    return drawn


def load_anchor() -> Any:
    """The pre-trained base model of the nano lab."""
    return AutoModelForCausalLM.from_pretrained(anchor_path(WORLD), dtype=torch.float32).eval()


# --- Learning ---------------------------------------------------------------------------------------------------------


def is_flat(rows: Sequence[Row]) -> bool:
    """Whether all rewards are equal, so that the group has no gradient."""
    return max(row.reward for row in rows) - min(row.reward for row in rows) <= 1e-12


def mean_centred(groups: Sequence[Sequence[Row]]) -> None:
    """The solver's advantage (Dr.GRPO): A = r - mu."""
    for rows in groups:
        mean = fmean(row.reward for row in rows)
        for row in rows:
            row.advantage = 0.0 if is_flat(rows) else row.reward - mean


def dugrpo(groups: Sequence[Sequence[Row]]) -> None:
    """The generator's advantage, DuGRPO (eq:gen_advantage): A = (s - mu_d) / (sigma_d + sigma_B + 1e-6).

    s is a text's reward, mu_d and sigma_d are of the texts of its document, sigma_B is the mean sigma_d of the batch.
    """
    sigmas = [0.0 if is_flat(rows) else stdev(row.reward for row in rows) for rows in groups]
    mean_centred(groups)
    for rows, sigma in zip(groups, sigmas, strict=True):
        for row in rows:
            row.advantage /= sigma + fmean(sigmas) + 1e-6


def logprobs(model: Any, rows: Sequence[Row]) -> list[Tensor]:
    """Log-probabilities of the tokens of each row, [T] with gradient."""
    ids = [row.prompt + row.tokens for row in rows]
    width = max(map(len, ids))
    ids_BT = torch.tensor([each + [0] * (width - len(each)) for each in ids])
    mask_BT = torch.tensor([[1] * len(each) + [0] * (width - len(each)) for each in ids])
    logprobs_BTV = torch.log_softmax(model(ids_BT, mask_BT).logits, -1)
    return [
        logprobs_BTV[place, len(row.prompt) - 1 : len(row.prompt) + len(row.tokens) - 1]
        .gather(1, torch.tensor(row.tokens)[:, None])[:, 0]
        for place, row in enumerate(rows)
    ]  # fmt: skip


def gradient(model: Any, groups: Sequence[Sequence[Row]], longest: int, divisor: int) -> Tensor:
    """Gradient of -J (eq:unified_obj) of some groups, divided by `divisor`: [P]."""
    loss = torch.zeros((), dtype=model.dtype)
    for rows in groups:
        for row, new_T in zip(rows, logprobs(model, rows), strict=True):
            old_T = new_T.detach() if row.old_T is None else row.old_T
            ratio_T, advantage = (new_T - old_T).exp(), row.advantage
            surrogate_T = torch.minimum(ratio_T * advantage, ratio_T.clamp(1 - CLIP, 1 + CLIP) * advantage)
            # The sampler's numbers differ slightly from the trainer's: a truncated importance weight.
            weight_T = (old_T - torch.tensor(row.logprobs, dtype=model.dtype)).exp().clamp(max=TIS_CAP)
            loss = loss - (weight_T * surrogate_T).sum() / (len(rows) * longest * divisor)
    model.zero_grad()
    loss.backward()
    return parameters_to_vector([parameter.grad for parameter in model.parameters()])


def influence(solver: Player, rows: Sequence[Row], dev_gradient_P: Tensor) -> float:
    """s(q): cosine of g_dev and of the question's direction in an AdamW step (eq:estimated_influence_score).

    The direction is what this gradient adds to an AdamW step: it is divided by the root of the second moment after that
    step. The old first moment and weight decay, which no question changes, are left out, and clipping. Both gradients
    are of -J, and a step goes against them: a positive score means that the step improves the dev set.
    """
    gradient_P = gradient(solver.model, [rows], ANSWER_TOKENS, 1)
    correction = 1 - BETA_2 ** (solver.steps + 1)
    second_P = (BETA_2 * solver.second_P + (1 - BETA_2) * gradient_P**2) / correction
    direction_P = gradient_P / (second_P.sqrt() + EPSILON)
    return float(torch.cosine_similarity(direction_P.double(), dev_gradient_P.double(), dim=0, eps=1e-12))


def step(player: Player, gradient_P: Tensor, rate: float) -> None:
    """AdamW with a clipped gradient and decoupled weight decay (eq:adamw_moments)."""
    gradient_P = gradient_P * min(1.0, MAX_NORM / (float(gradient_P.double().norm()) + 1e-6))
    player.steps += 1
    player.first_P.lerp_(gradient_P, 1 - BETA_1)
    player.second_P.mul_(BETA_2).addcmul_(gradient_P, gradient_P, value=1 - BETA_2)
    root_P = player.second_P.sqrt() / (1 - BETA_2**player.steps) ** 0.5 + EPSILON
    parameters = list(player.model.parameters())
    weights_P = parameters_to_vector(parameters).detach() * (1 - rate * DECAY)
    weights_P.addcdiv_(player.first_P, root_P, value=-rate / (1 - BETA_1**player.steps))
    vector_to_parameters(weights_P, parameters)


def mix_documents(questions: Sequence[Question]) -> list[str]:
    """Question ids in an order that spreads each document's questions evenly: by their share of it that came before."""
    sizes, seen = Counter(question.document_id for question in questions), Counter()
    places = []
    for number, question in enumerate(questions):
        document = question.document_id
        places.append(((seen[document] + 0.5) / sizes[document], list(sizes).index(document), number))
        seen[document] += 1
    return [questions[number].question_id for _, _, number in sorted(places)]


# --- Questions and answers --------------------------------------------------------------------------------------------


def write_questions(
    generator: Player, documents: Sequence[dict[str, str]], iteration: int
) -> tuple[dict[str, list[Row]], list[Question]]:
    """n texts per document, and the questions among them (Algorithm 2, phase 2)."""
    keys = [(each, index) for each in documents for index in range(SAMPLES)]
    seeds = [seed_of(SEED, f"generate_questions/{iteration}", each["document_id"], index) for each, index in keys]
    rows = sample(generator.model, [f"Write a question:\n{each['text']}" for each, _ in keys], seeds, QUESTION_TOKENS)
    texts: dict[str, list[Row]] = {}
    questions = []
    for (document, index), row in zip(keys, rows, strict=True):
        name = document["document_id"]
        texts.setdefault(name, []).append(row)
        question = parse_question(row.text, name, f"{iteration}/{name}/{index}")
        if question is not None:
            row.question_id = question.question_id
            questions.append(question)
    return texts, questions


def parse_question(text: str, document: str, rollout: str) -> Question | None:
    """The question in a text of the generator: JSON with four different choices, one of which is the key."""
    try:
        record = json.loads(text[text.index("{") : text.rindex("}") + 1])
        question, choices, key = record["question_text"], record["choices"], record["ground_truth"]
        if not question or len(choices) != 4 or len({*choices} - {""}) < 4 or key not in choices:
            return None
    except (ValueError, KeyError, TypeError):
        return None
    digest = hashlib.sha256(json.dumps([question, choices]).encode()).hexdigest()[:8]
    return Question(
        question_id=f"{rollout}-{digest}", text=question, choices=choices, answer="ABCD"[choices.index(key)],
        verifier="choice", domain="", subdomain="", document_id=document, rollout_id=rollout,
    )  # fmt: skip


def answer_questions(
    model: Any, questions: Sequence[Question], scope: str, samples: int = SAMPLES, **sampling: Any
) -> dict[str, list[Row]]:
    """Answers by question, with reward 1 for a right one (Algorithm 2, phases 1 and 2)."""
    draws = [(question, index) for question in questions for index in range(samples)]
    seeds = [seed_of(SEED, scope, question.question_id, index) for question, index in draws]
    prompts = []
    for question, _ in draws:
        lines = [f"{letter}) {choice}" for letter, choice in zip("ABCD", question.choices, strict=True)]
        prompts.append("\n".join([f"Solve:\n{question.text}", *lines]))
    rows = sample(model, prompts, seeds, ANSWER_TOKENS, **sampling)
    findings = check_all([Job(response=row.text, question=each) for row, (each, _) in zip(rows, draws, strict=True)])
    answers: dict[str, list[Row]] = {}
    for row, finding, (question, _) in zip(rows, findings, draws, strict=True):
        row.reward = float(finding.verdict == "correct")
        answers.setdefault(question.question_id, []).append(row)
    return answers


# --- Sampling ---------------------------------------------------------------------------------------------------------


def noise(seeds: Sequence[int], position: int) -> Tensor:
    """One fp64 number in [0, 1) per seed for the token at `position`.

    A hash: with a generator's state, a text would depend on the other rows of its batch.
    """

    def mix(z: np.ndarray) -> np.ndarray:
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        bits = mix(mix(np.array(seeds, np.uint64) + golden) + golden * np.uint64(position + 1))
    return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


@torch.inference_mode()
def sample(model: Any, prompts: Sequence[str], seeds: Sequence[int], limit: int, temperature: float = 1.0,
           top_k: int = 0, top_p: float = 1.0) -> list[Row]:  # fmt: skip
    """Write one text per prompt and seed, of at most `limit` tokens; `top_k` and `top_p` are for evaluation."""
    if not prompts:
        return []
    turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
    ids = [TOKENIZER.apply_chat_template(turn, add_generation_prompt=True, return_dict=False) for turn in turns]
    rows, width = [Row(list(each), [], []) for each in ids], max(map(len, ids))
    ids_BT = torch.tensor([[0] * (width - len(each)) + each for each in ids])
    mask_BT = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in ids])
    places_BT, cache, alive_B = (mask_BT.cumsum(1) - 1).clamp(min=0), DynamicCache(), [True] * len(rows)
    for position in range(limit):
        logits_BV = model(ids_BT, mask_BT, places_BT, cache, use_cache=True, logits_to_keep=1).logits[:, 0]
        logprobs_BV = torch.log_softmax(logits_BV.float() / temperature, -1)
        weights_BV, order_BV = logprobs_BV.exp(), torch.arange(logprobs_BV.shape[1]).expand_as(logprobs_BV)
        if top_k:
            weights_BV, order_BV = (each[:, :top_k] for each in weights_BV.sort(dim=-1, descending=True, stable=True))
            sums_BV = weights_BV.cumsum(-1, dtype=torch.float64)
            weights_BV = weights_BV * (sums_BV - weights_BV < top_p * sums_BV[:, -1:])
        sums_BV = weights_BV.cumsum(-1, dtype=torch.float64)
        drawn_B1 = torch.searchsorted(sums_BV, noise(seeds, position)[:, None] * sums_BV[:, -1:], right=True)
        ids_BT = order_BV.gather(1, drawn_B1.clamp(max=order_BV.shape[1] - 1))
        chosen_B = logprobs_BV.gather(1, ids_BT)[:, 0].tolist()
        for place, (row, token, logprob) in enumerate(zip(rows, ids_BT[:, 0].tolist(), chosen_B, strict=True)):
            if alive_B[place]:
                row.tokens.append(token)
                row.logprobs.append(logprob)
                alive_B[place] = token != END
        if not any(alive_B):
            break
        mask_BT = torch.cat([mask_BT, torch.ones_like(ids_BT)], 1)
        places_BT = places_BT[:, -1:] + 1
    for row in rows:
        row.text = TOKENIZER.decode(row.tokens, skip_special_tokens=True)
    return rows


def accuracy(model: Any) -> float:
    """Accuracy on the validation set, one answer per question."""
    questions = draw_questions("target", "validation", 96, SEED, WORLD)
    answers = answer_questions(model, questions, "evaluate/validation", 1, temperature=0.7, top_k=20, top_p=0.8)
    return fmean(rows[0].reward for rows in answers.values())


def main(iterations: int) -> None:
    """Train, and print the validation accuracy, the mean influence of the questions, and their number."""
    torch.set_num_threads(1)
    pool = [json.loads(line) for line in POOL.read_text(encoding="utf-8").splitlines()]
    anchor = load_anchor()
    print(f"iteration  accuracy  influence  questions\n{0:<11}{accuracy(anchor):.3f}")
    for number, each in enumerate(co_train(pool, iterations, anchor), 1):
        if number % 5 == 0:
            mean = fmean(each.scores.values() or [0.0])
            print(f"{number:<11}{accuracy(each.solver.model):<10.3f}{mean:<+11.3f}{len(each.questions)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
