"""A trainer rank that counts what it gathers: weights as wide as it holds them, or as narrow as it multiplies them."""

import deepspeed
import torch.distributed as dist
from deepspeed.runtime.torch_autocast import PARAM_COMM_DTYPE_ATTR_NAME
from distributed_tiny import batch
from engine_tiny import OBJECTIVE

from infuser_core.engines.deepspeed.rank import DeepSpeedRank
from infuser_core.engines.deepspeed.split import split


class Counting(DeepSpeedRank):
    """One of two ranks."""

    def train(self, path: str) -> int:
        """Write the gradient of a batch; bytes that arrived by gathering for it."""
        logger = deepspeed.comm.comm.comms_logger
        logger.comms_dict.clear()
        deepspeed.comm.configure(enabled=True, prof_all=True)
        self.zero_grad()
        mine = split(batch(), 2)[dist.get_rank()]
        self.forward_backward(mine, OBJECTIVE, 4)
        deepspeed.comm.configure(enabled=False)
        self.keep_gradient(path, True)
        found = [(name, size, each[0]) for name, sizes in logger.comms_dict.items() for size, each in sizes.items()]
        return sum(size * count for name, size, count in found if "gather" in name)

    def widen(self) -> None:
        """From now on every weight is gathered in fp32."""
        for each in self._loaded().parameters.values():
            each.__dict__.pop(PARAM_COMM_DTYPE_ATTR_NAME, None)
