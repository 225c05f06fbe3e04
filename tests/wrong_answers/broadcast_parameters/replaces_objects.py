"""Diagnosis: 05.replaces

New Parameters are put into the modules. An optimizer that was made before holds the old ones, and
trains them.
"""

import torch.distributed as dist
from torch import nn


def broadcast_parameters(model: nn.Module, src: int = 0) -> None:
    made = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is None:
                continue
            if parameter not in made:
                inbox = parameter.detach().clone()
                dist.broadcast(inbox, src)
                made[parameter] = nn.Parameter(inbox, parameter.requires_grad)
            module._parameters[name] = made[parameter]
    for buffer in model.buffers():
        dist.broadcast(buffer, src)
