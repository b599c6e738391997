"""A trainer on one device: packed forward and backward, optimizer steps, and optimizer-aware influence scores."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from infuser_core.engines.hf.causal_lm import (
    choose_device,
    choose_dtype,
    configure_process,
    copy_companions,
    device_name,
    load_model,
    outer_layers,
    saved_buffers,
    set_deterministic,
)
from infuser_core.engines.local.memory import STATE, BudgetSetting, TokenBudget, free_memory, require_memory
from infuser_core.engines.local.passes import FlatTrainer, Result
from infuser_core.engines.service.checksum import of_adapter, of_tensors
from infuser_core.engines.service.weight_transfer import HERE, Board
from infuser_core.engines.training.checkpoint import (
    MOMENTS,
    WEIGHTS,
    TrainerState,
    count_weights,
    fill_tensors,
    places_in,
    read_state,
)
from infuser_core.engines.training.compute_clock import ComputeClock
from infuser_core.engines.training.flat import FlatParameters
from infuser_core.engines.training.fused_attention import choose_attention
from infuser_core.engines.training.fused_elementwise import choose_elementwise, fuse_elementwise
from infuser_core.engines.training.optimizer import OptimizerSetting
from infuser_core.engines.training.packing import Packer, longest_row
from infuser_core.engines.training.parked import Parked, ParkedState, copy_to_host, host_bytes
from infuser_core.engines.training.policy import ModelPolicy, tied_names
from infuser_core.engines.training.recomputation import enable_recomputation
from infuser_core.engines.training.tensor_files import Shapes, read_entries, write_run
from infuser_core.memory.hardware import HOST_SHARE
from infuser_core.memory.shape import read_shape
from infuser_core.memory.sizes import Checkpointing
from infuser_core.protocols import TrainGroup
from infuser_core.schemas import Checkpoint
from infuser_core.store.adapter_files import CONFIG, base_folder, is_packed, read_scale, rename_for_peft
from infuser_core.store.adapter_files import WEIGHTS as ADAPTER
from infuser_core.system.durable import fsync

AUTOMATIC = {"cpu": 2048, "cuda": 131_072}
"""Largest automatic token budget of a micro-batch."""


class LocalTrainer(FlatTrainer):
    """protocols.Trainer on one device, and weight_transfer.WeightSource.

    `dtype` is the compute dtype; master weights, gradients and moments are fp32 (fp64 for float64). `token_budget`
    bounds the tokens of a micro-batch (`auto`: see memory, for `roles` trainers on the device); gradients do not depend
    on it. If an accelerator runs out of memory, the pass starts again with half the budget. `attention`: see
    fused_attention. `deterministic`: see `set_deterministic`. Saved weights also go to the `board`. `threads` applies
    to the whole process.
    """

    def __init__(
        self,
        *,
        dtype: str,
        device: str,
        threads: int,
        token_budget: BudgetSetting,
        gradient_checkpointing: Checkpointing,
        attention: str,
        elementwise: str,
        deterministic: bool,
        roles: int = 1,
        free: Callable[[torch.device], int] = free_memory,
        optimizer: OptimizerSetting = None,
        board: Board | None = None,
        write_beside: bool = False,
    ) -> None:
        super().__init__(optimizer, write_beside=write_beside)
        self._board, self._role = board, ""
        self._asleep: Parked | None = None
        self._parked: dict[str, ParkedState] = {}
        configure_process(threads)
        set_deterministic(deterministic)
        self._deterministic = deterministic
        self._compute_dtype = choose_dtype(dtype)
        self._master_dtype = torch.float64 if self._compute_dtype == torch.float64 else torch.float32
        self._device = choose_device(device)
        self._clock = ComputeClock(self._device)
        self._free, self._roles = free, roles
        most = AUTOMATIC[self._device.type]
        self._new_budget = partial(TokenBudget, token_budget, most=most, checkpointing=gradient_checkpointing)
        self._budgets: dict[str, TokenBudget] = {}
        self._attention, self._kernels = attention, dict[str, str]()
        self._elementwise = elementwise
        self._packer = Packer(device=self._device, dtype=self._master_dtype, **self._budget.limits())
        self._gradient_checkpointing = gradient_checkpointing

    @property
    def _budget(self) -> TokenBudget:
        return self._budgets.setdefault(self._role, self._new_budget())

    @property
    def forgets(self) -> bool:
        """Whether a checkpoint must be loaded after `sleep`, since the state has no room in host memory."""
        return self._folder is None

    def load(self, checkpoint: Checkpoint) -> None:
        """Load weights, moments and step.

        Raises CheckpointError for a folder without optimizer state, EngineError if memory is too small.
        """
        folder = Path(checkpoint.path)
        state = read_state(folder, self._options)
        if (folder, str(checkpoint.role)) == (self._folder, self._role) and self._restore(folder, state):
            return
        if self._folder is None:
            self._require_memory(folder)
        # What it holds gives way to what it loads.
        self._release()
        self._role = str(checkpoint.role)
        model, trained = self._read_model(folder)
        self._recomputation = enable_recomputation(model, self._gradient_checkpointing)
        if not self._kernels:
            config = model.config.get_text_config()
            layout, self._kernels = choose_attention(
                self._attention, config, dtype=self._compute_dtype, device=self._device
            )
            self._kernels |= choose_elementwise(self._elementwise, dtype=self._compute_dtype, device=self._device)
            self._packer = replace(self._packer, layout=layout)
        if self._kernels["elementwise"] == "fused":
            fuse_elementwise(model)
        policy = ModelPolicy(model, compute_dtype=self._compute_dtype, recomputation=self._recomputation)
        adapter = base_folder(folder) is not None
        buffers = {} if adapter else saved_buffers(model)
        flat = FlatParameters(trained, outer=outer_layers(model))
        self._hold(policy, flat, state, folder, adapter=adapter, buffers=buffers)
        if not self._budget.is_known:
            frozen = sum(each.nbytes for each in model.parameters() if not each.requires_grad)
            # Memory for the other roles' trainers on the device.
            others = (self._roles - 1) * (STATE * self._flat.data.numel() + frozen)
            self._budget.predict(
                folder,
                free=self._free(self._device) - others,
                width=self._compute_dtype.itemsize,
                master=self._master_dtype.itemsize,
                adapters=self._flat.data.numel() if adapter else 0,
                cells=policy.output.kept_cells,
            )
        self._use_budget()
        self.zero_grad()

    def _restore(self, folder: Path, state: TrainerState) -> bool:
        """Undo steps since the load of the same folder; False if asleep, or if its file of weights has other names."""
        file = folder / (ADAPTER if self._adapter else WEIGHTS)
        if self._asleep is not None or not file.is_file():
            return False
        weights = self._weights()
        if places_in(file).keys() != weights.keys():
            return False
        fill_tensors(weights, file)
        fill_tensors(self._optimizer.state(), folder / MOMENTS)
        self._optimizer.steps = state.step
        self.zero_grad()
        return True

    def _read_model(self, folder: Path) -> tuple[PreTrainedModel, dict[str, nn.Parameter]]:
        """Load the model and return it with its trained parameters.

        These are all parameters, in the master dtype, or the adapters of a base model in the compute dtype.
        """
        if base_folder(folder) is None:
            model = load_model(folder, dtype=self._master_dtype, device=self._device)
        else:
            model = load_model(folder, dtype=self._compute_dtype, device=self._device, attached=True)
        return model, {name: each for name, each in model.named_parameters() if each.requires_grad}

    def _require_memory(self, folder: Path) -> None:
        """Raise EngineError, before a weight is read, if a model's training state does not fit into memory."""
        base = base_folder(folder)
        weights = count_weights(base or folder)
        if weights is not None:
            width = float(self._compute_dtype.itemsize)
            if base is None:
                # Weight, gradient and two moments.
                width = (2 + self._options.moment_bytes / 2) * self._master_dtype.itemsize
            elif is_packed(folder):
                shape = replace(read_shape(base), four_bit=True)
                width = shape.weight_bytes(width) / shape.parameters
            adapters = count_weights(folder, ADAPTER) or 0 if base else 0
            free = self._free(self._device)
            require_memory(weights, width, free=free, purpose="training it", adapters=adapters)

    def save(self, path: Path) -> int:
        """Write weights, moments, step, config and tokenizer files into an existing folder; returns the step."""
        step = super().save(path)
        folder = self._loaded()
        copy_companions(folder, path)
        if self._adapter:
            fsync(Path(shutil.copyfile(folder / CONFIG, path / CONFIG)))
        # Only trained weights go to the board: an engine that starts from them would lack the buffers.
        if self._board is not None and not self._buffers:
            self._board.publish(path, self._role, self)
        return step

    def shapes(self) -> Shapes:
        return {name: each.shape for name, each in self._weights().items()}

    def tied(self) -> dict[str, str]:
        assert isinstance(self._policy, ModelPolicy)
        return {} if self._adapter else tied_names(self._policy.model)

    def machines(self) -> list[str]:
        return [HERE]

    def fill_files(self, paths: Mapping[str, Path], dtype: str) -> None:
        self._loaded()
        entries = read_entries(paths[HERE])
        with paths[HERE].open("r+b") as handle:
            for name, each in self._weights().items():
                write_run(handle, entries[name], 0, each)

    def checksums(self, dtype: str) -> dict[str, int]:
        folder = self._loaded()
        if self._adapter:
            return of_adapter(self._weights(), dtype, scale=read_scale(folder))
        return of_tensors(self._weights(), dtype)

    def _weights(self) -> dict[str, Tensor]:
        """Return the trained weights by their names in a checkpoint's files."""
        views = self._flat.views(self._flat.data)
        return rename_for_peft(views) if self._adapter else views

    def sleep(self) -> None:
        """Free the device's memory: the state moves to host memory, or is dropped if that has no room for it."""
        if self._folder is None or self._asleep is not None:
            return
        assert isinstance(self._policy, ModelPolicy)
        frozen = [each.data for each in self._policy.model.parameters() if not each.requires_grad]
        gradient = self._flat.gradient
        state = [*self._state(), *frozen, *([gradient] if self._accumulated else [])]
        if self._has_room(state):
            self._asleep = Parked(state=state, scratch=[gradient], pinned=True)
            self._empty_cache()
        else:
            self._release()

    def wake(self) -> None:
        """Do nothing: the next call restores the state, or replaces it if that call is a load."""

    def park(self, name: str) -> bool:
        """Keep the training state in host memory under the name of a role; False if it has no room there."""
        if self._folder is None:
            return False
        state = self._state()
        if self._asleep is None and not self._has_room(state):
            return False
        copies = copy_to_host(state) if self._asleep is None else self._asleep.copies[: len(state)]
        self._parked[name] = ParkedState(tensors=copies, steps=self._optimizer.steps, source=self._folder)
        return True

    def take(self, checkpoint: Checkpoint) -> None:
        """Load the state of the checkpoint's role that `park` kept, with zero gradients; it must be of the same model.

        A model with adapters on another base is loaded from its files.
        """
        parked = self._parked.pop(str(checkpoint.role))
        if self._folder is None or base_folder(parked.source) != base_folder(self._folder):
            self.load(checkpoint)
            return
        if self._asleep is not None:
            self._asleep.restore(parked.tensors)
            self._asleep = None
        else:
            for tensor, copy in zip(self._state(), parked.tensors, strict=True):
                tensor.copy_(copy)
        self._optimizer.steps, self._folder, self._role = parked.steps, parked.source, str(checkpoint.role)
        self._use_budget()
        self.zero_grad()

    def drop(self, name: str) -> None:
        """Drop the state that `park` kept under a name."""
        self._parked.pop(name, None)

    def _state(self) -> list[torch.Tensor]:
        return [self._flat.data, *self._optimizer.buffers()]

    def _has_room(self, tensors: Sequence[torch.Tensor]) -> bool:
        return host_bytes(tensors) <= HOST_SHARE * self._free(torch.device("cpu"))

    def _release(self) -> None:
        """Free the memory of model and optimizer."""
        self._folder = self._asleep = None
        for name in ("_flat", "_policy", "_optimizer"):
            self.__dict__.pop(name, None)
        self._empty_cache()

    def _empty_cache(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _loaded(self) -> Path:
        if self._asleep is not None:
            self._asleep.restore()
            self._asleep = None
        return super()._loaded()

    def facts(self) -> dict[str, Any]:
        """Describe device and kernels, for an artifact's record."""
        return {
            "engine": "local",
            "device": device_name(self._device),
            "dtype": str(self._compute_dtype).removeprefix("torch."),
            "deterministic": self._deterministic,
            **self._kernels,
            **self._budget.facts(),
        }

    def _run_pass(
        self, work: Callable[[], Result], groups: Sequence[TrainGroup], *, writes_gradient: bool = True
    ) -> Result:
        """Run a whole pass; repeat it from the gradient before it if memory runs out."""
        # The copy costs seconds on an accelerator: 4.7 s at 1.7B parameters.
        gradient = self._flat.gradient.to("cpu", copy=True) if writes_gradient and self._accumulated else None
        while True:
            try:
                return work()
            except torch.OutOfMemoryError as error:
                self._budget.halve(error, place="a pass over groups", longest=longest_row(groups))
            # Only after the handler, since the error keeps the tensors of the pass alive.
            self._empty_cache()
            self._use_budget()
            if gradient is not None:
                self._flat.gradient.copy_(gradient)
            elif writes_gradient:
                self._flat.gradient.zero_()

    def _use_budget(self) -> None:
        self._packer = replace(self._packer, **self._budget.limits())
        if self._recomputation is not None:
            self._recomputation.kept_tokens = self._budget.kept_tokens
