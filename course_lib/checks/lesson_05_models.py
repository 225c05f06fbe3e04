"""What ranks of lesson 05 are given: models and an optimizer that note what is done to them.

When answers are graded, ranks have this file in their memory: nothing in it is what is expected of
an answer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Model(nn.Module):
    """Layers in a row.

    Unlike a plain module it keeps its gradients when it is copied or sent, and it notes in
    ``replaced`` which of its tensors are no longer the objects that they were. Where ``beside``
    is a number, its first parameter lies in the middle of a larger piece of memory, as a slice
    lies in a buffer for all parameters, and that number around it.
    """

    beside: float | None = None

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.replaced: tuple[str, ...] = ()
        self.hold()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = layer(x)
        return x

    def parts(self) -> dict[str, Tensor]:
        """Every tensor object there is, by name."""
        found = dict(self.named_parameters()) | dict(self.named_buffers())
        grads = {f"{name}.grad": p.grad for name, p in self.named_parameters()}
        return found | {name: grad for name, grad in grads.items() if grad is not None}

    def hold(self) -> None:
        """From here on, note what is replaced."""
        self.held = {name: (t, t.data_ptr()) for name, t in self.parts().items()}

    def refill(self, other: Model) -> Model:
        """The same model, with the numbers and gradients of another one of its kind."""
        grads = {name: p.grad for name, p in other.named_parameters()}
        with torch.no_grad():
            for name, t in (dict(self.named_parameters()) | dict(self.named_buffers())).items():
                t.copy_(other.parts()[name])
        for name, p in self.named_parameters():
            force_grad(p, grads[name])
        self.hold()
        return self

    def __getstate__(self) -> dict:
        now = self.parts()
        new = [name for name, (t, place) in self.held.items()
               if now.get(name) is not t or t.data_ptr() != place]  # fmt: skip
        state = {name: value for name, value in self.__dict__.items() if name != "held"}
        grads = {name: p.grad for name, p in self.named_parameters()}
        state["grads"] = {n: None if g is None else g.detach() for n, g in grads.items()}
        state["replaced"] = (*self.replaced, *(n for n in new if n not in self.replaced))
        return state

    def __setstate__(self, state: dict) -> None:
        grads = state.pop("grads")
        super().__setstate__(state)
        if self.beside is not None:
            first = next(self.parameters())
            memory = torch.full((first.numel() + 8,), self.beside, dtype=first.dtype)
            first.data = memory[4:-4].view(first.shape).copy_(first.data)
        for name, parameter in self.named_parameters():
            force_grad(parameter, grads[name])
        self.hold()


def force_grad(parameter: nn.Parameter, grad: Tensor | None) -> None:
    """Make this the gradient, also where torch itself would not have a gradient of its dtype."""
    fits = grad is None or (grad.dtype == parameter.dtype and grad.shape == parameter.shape)
    parameter.grad = grad if fits else None
    if grad is not None and not fits:
        parameter.grad = torch.empty_like(parameter)
        parameter.grad.data = grad


class Scaled(Model):
    """A model that holds a parameter itself, beside its layers."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__(**layers)
        self.scale = nn.Parameter(torch.zeros(()))
        self.hold()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.scale


class Counts(nn.Module):
    """A layer that passes everything on and keeps statistics, as BatchNorm does."""

    def __init__(self, more: bool = False) -> None:
        super().__init__()
        self.register_parameter("scale", None)  # a name that nothing stands for, as where a layer
        self.register_buffer("variance", None)  # is told to do without
        if more:
            self.register_buffer("mask", torch.zeros(3, dtype=torch.bool))
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        return x


class Cache(nn.Module):
    """A layer with a buffer that is no part of the state_dict."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(3), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x


class Shapes(nn.Module):
    """Parameters without a dimension, without an element, with three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("scalar", ()), ("none", (0,)), ("cube", (2, 1, 2))):
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))


class SGD(torch.optim.SGD):
    """torch's own, with a name of one line."""

    def __repr__(self) -> str:
        return f"SGD(lr={self.defaults['lr']}, momentum={self.defaults['momentum']})"

    def refill(self, other: SGD) -> SGD:
        """The same optimizer, with the settings and momenta of another one of its kind."""
        for mine, theirs in zip(self.param_groups, other.param_groups, strict=True):
            mine.update((k, v) for k, v in theirs.items() if k != "params")
            for p, like in zip(mine["params"], theirs["params"], strict=True):
                self.state.pop(p, None)
                if like in other.state:
                    self.state[p] = other.state[like]
        return self
