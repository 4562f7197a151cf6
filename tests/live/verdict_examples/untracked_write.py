"""Further examples of `untracked-write`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "An attribute of ctx, written between forward and backward",
        """import torch

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.x * gradient

w = torch.ones(3, requires_grad=True)
h = w * 2
y = Square.apply(h)
h.add_(1)
y.sum().backward()
print(w.grad)
""",
        (Expected("untracked-write", "h", 16),),
    ),
    Example(
        "An attribute of ctx, written when its backward has run",
        """import torch

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.x * gradient

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    Square.apply(w).sum().backward()
    opt.step()
print(w.grad)
""",
        (),
    ),
    Example(
        "What gradcheck shifts and puts back",
        """import torch

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad * w, grad * x

x = torch.randn(3, dtype=torch.double, requires_grad=True)
w = torch.randn(3, dtype=torch.double, requires_grad=True)
torch.autograd.gradcheck(Scale.apply, (x, w))
""",
    ),
    Example(
        "A write through .data",
        """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
h.data.zero_()
h.sum().backward()
""",
        (Expected("untracked-write", "h", 5),),
    ),
    Example(
        "A write through the NumPy array",
        """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
array = h.detach().numpy()
array[:] = 0
h.sum().backward()
""",
        (Expected("untracked-write", "h", 5),),
    ),
    Example(
        "A write through a tensor made from the array",
        """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
torch.from_numpy(h.detach().numpy()).zero_()
h.sum().backward()
""",
        (Expected("untracked-write", "h", 5),),
    ),
    Example(
        "A write through DLPack",
        """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
torch.from_dlpack(h.detach()).zero_()
h.sum().backward()
""",
        (Expected("untracked-write", "h", 5),),
    ),
    Example(
        "A write through the storage",
        """import torch

w = torch.ones(3, requires_grad=True)
h = torch.exp(w)
h.untyped_storage().fill_(0)
h.sum().backward()
""",
        (Expected("untracked-write", "h", 5),),
    ),
    Example(
        "An update by hand after the backward pass, and a value that nothing saved",
        """import torch

w = torch.ones(3, requires_grad=True)
for _ in range(3):
    h = w + 1
    h.data.clamp_(max=1.5)
    (h * w).sum().backward()
    w.data.sub_(0.1 * w.grad)
    w.grad = None
""",
    ),
)
