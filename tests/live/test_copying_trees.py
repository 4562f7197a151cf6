"""`tether.copy` of anything that holds tensors."""

from __future__ import annotations

import collections
import dataclasses
import functools
import threading
import weakref
from typing import ClassVar, NamedTuple

import optree
import pytest
import torch
from torch import nn

import tether
from tether.copying import storages, trees
from tether.copying.intent import Refused


class Point(NamedTuple):
    x: torch.Tensor
    name: str


@dataclasses.dataclass(frozen=True)
class State:
    weights: dict[str, torch.Tensor]
    step: int = 0


class Slotted:
    __slots__ = ("__hidden", "w")

    def __init__(self, w: torch.Tensor) -> None:
        self.w = w
        self.__hidden = w[1:]

    def hidden(self) -> torch.Tensor:
        return self.__hidden


class Tied(nn.Module):
    """Tied weights, a buffer that is a view, a non-leaf, a lock and hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("table", torch.arange(12.0))
        self.register_buffer("window", self.table[3:7], persistent=False)
        self.doubled = self.embed.weight * 2
        self.lock = threading.Lock()
        self.seen: list[str] = []
        self.register_forward_hook(functools.partial(type(self).note, self))

    def note(self, *_: object) -> None:
        self.seen.append("called")

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(index))


def test_a_module_is_copied_with_its_ties():
    model = Tied()
    copied = tether.copy(model)
    assert copied.head.weight is copied.embed.weight
    assert isinstance(copied.embed.weight, nn.Parameter)
    assert tether.relate(copied.window, copied.table).bytes == 16
    assert list(copied.state_dict()) == list(model.state_dict())
    assert not copied.doubled.requires_grad
    assert copied.lock is model.lock
    for mine, theirs in zip(model.parameters(), copied.parameters(), strict=True):
        assert tether.relate(mine, theirs).memory == "none"
    copied(torch.tensor([1]))
    assert (copied.seen, model.seen) == (["called"], [])


def test_the_gradient_of_a_leaf_is_not_copied():
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    before = model.weight.grad.clone()
    assert tether.copy(model).weight.grad is None
    assert torch.equal(model.weight.grad, before)


def test_a_state_dict_keeps_its_metadata():
    state = nn.BatchNorm1d(3).state_dict()
    copied = tether.copy(state)
    assert type(copied) is collections.OrderedDict
    assert copied._metadata == state._metadata
    assert copied._metadata is not state._metadata


def test_model_and_optimizer_stay_one():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    copied, its = tether.copy((model, optimizer))
    assert its.param_groups[0]["params"][0] is copied.weight
    assert set(map(id, its.state)) == {id(copied.weight), id(copied.bias)}
    before = model.weight.detach().clone()
    copied(torch.ones(1, 2)).sum().backward()
    its.step()
    assert torch.equal(model.weight, before)
    assert not torch.equal(copied.weight, before)


def test_every_kind_of_container():
    w = torch.arange(4.0)
    tree = {
        "named": Point(w, "w"),
        "data": State({"a": w[1:]}),
        "slots": Slotted(w),
        "default": collections.defaultdict(list, k=[w]),
        "queue": collections.deque([w], maxlen=3),
        "result": torch.max(torch.ones(2, 2), 0),
        "set": {1, 2},
        ("key", 1): (w, w),
    }
    copied = tether.copy(tree)
    assert list(copied) == list(tree)
    assert [type(v) for v in copied.values()] == [type(v) for v in tree.values()]
    one = copied["named"].x
    assert one is copied["slots"].w is copied["default"]["k"][0] is copied["queue"][0]
    assert tether.relate(one, w).memory == "none"
    assert tether.relate(one, copied["data"].weights["a"]).bytes == 12
    assert tether.relate(one, copied["slots"].hidden()).bytes == 12
    assert copied["queue"].maxlen == 3
    assert copied["set"] is not tree["set"]


def test_cycles():
    tree: list[object] = [torch.ones(2)]
    tree.append({"self": tree, "pair": (tree, tree[0])})
    copied = tether.copy(tree)
    assert copied[1]["self"] is copied
    assert copied[1]["pair"][0] is copied
    assert copied[1]["pair"][1] is copied[0]
    ring = Slotted(torch.ones(2))
    ring.w.owner = ring
    again = tether.copy(ring)
    assert again.w.owner is again


def test_a_registered_node_is_rebuilt_by_its_functions():
    class Opaque:
        __slots__ = ()

    class Box(Opaque):
        __slots__ = ()
        held: ClassVar[dict[int, object]] = {}

    def make(value):
        box = Box()
        Box.held[id(box)] = value
        Box.held[-id(box)] = box
        return box

    optree.register_pytree_node(
        Box,
        lambda b: ([Box.held[id(b)]], None),
        lambda _, parts: make(parts[0]),
        namespace=optree.registry.__GLOBAL_NAMESPACE,
    )
    box = make(torch.ones(2))
    copied = tether.copy({"box": box})["box"]
    inside = Box.held[id(copied)]
    assert inside.tolist() == [1, 1]
    assert tether.relate(inside, Box.held[id(box)]).memory == "none"


def test_leaves_keep_their_hooks_and_attributes():
    calls = []
    leaf = torch.ones(2, requires_grad=True)
    leaf.register_hook(lambda grad: calls.append("hook"))
    leaf.register_post_accumulate_grad_hook(lambda tensor: calls.append("after"))
    leaf.tag = ["a"]
    (copied,) = tether.copy([leaf])
    assert copied.tag == ["a"]
    assert copied.tag is not leaf.tag
    copied.sum().backward()
    assert calls == ["hook", "after"]
    assert leaf.grad is None


def test_what_is_passed_through_and_what_is_not():
    def function() -> None: ...

    shared = {"settings": [1, 2]}
    target = nn.Linear(1, 1)
    tree = {"f": function, "c": Point, "m": torch, "d": shared, "r": weakref.ref(target)}
    tree |= {"w": torch.ones(1), "h": [torch.ones(1), shared]}
    copied = tether.copy(tree)
    for name in "fcmr":
        assert copied[name] is tree[name]
    assert copied["d"] is not shared
    assert copied["h"][1] is copied["d"]
    passing = tether.copy(tree, objects="share")
    assert passing["d"] is shared
    assert passing["h"] is not tree["h"]
    assert tether.relate(passing["w"], tree["w"]).memory == "none"
    assert tether.copy([target, tree["w"]], share_types=(nn.Linear,))[0] is target


def test_a_view_alone_is_compacted_and_two_are_not():
    large = torch.zeros(1000)
    assert tether.copy([large[:3]])[0].untyped_storage().nbytes() == 12
    one, two = tether.copy([large[:3], large[500:502]])
    assert one.untyped_storage().nbytes() == 4000
    assert two.storage_offset() == 500
    assert tether.relate(one, two).memory == "disjoint"


def test_foreign_memory_wrapped_twice_stays_one():
    array = torch.arange(6.0).numpy()
    one, two = tether.copy([torch.from_numpy(array), torch.from_numpy(array[2:])])
    assert tether.relate(one, two).bytes == 16
    two.zero_()
    assert one.tolist() == [0, 1, 0, 0, 0, 0]
    assert array.tolist() == [0, 1, 2, 3, 4, 5]


def test_conjugate_and_negative_views_stay_views():
    z = torch.tensor([1 + 2j, 3 - 4j])
    tree = [z, z.conj(), z.conj().imag, z.real]
    copied = tether.copy(tree)
    for x, y in zip(tree, copied, strict=True):
        assert torch.equal(x, y)
        assert (x.is_conj(), x.is_neg()) == (y.is_conj(), y.is_neg())
        assert tether.relate(y, copied[0]).memory != "none"
        assert y._version == 0
    copied[0].fill_(5j)
    assert copied[2].tolist() == [-5, -5]
    assert z.tolist() == [1 + 2j, 3 - 4j]


def test_a_converted_tree_is_still_tied():
    w = torch.arange(4.0)
    tree = {"w": w, "v": w[1:], "n": torch.tensor([1, 2]), "flag": torch.tensor([True])}
    copied = tether.copy(tree, dtype="float16")
    assert copied["w"].dtype is torch.float16
    assert tether.relate(copied["w"], copied["v"]).bytes == 6
    assert copied["n"].dtype is torch.int64
    assert copied["flag"].dtype is torch.bool
    with pytest.raises(Refused, match="several dtypes"):
        tether.copy([w, w.view(torch.float16)], dtype="float64")
    x = torch.ones(1, 2, 2, 2)
    with pytest.raises(Refused, match="memory format"):
        tether.copy([x, x[:1]], memory_format="channels_last")
    meta = tether.copy(tree, device="meta")
    assert tether.relate(meta["w"], meta["v"]).storage


def test_kept_gradients_flow_through_the_tied_copies():
    w = torch.arange(4.0).requires_grad_()
    copied = tether.copy({"w": w, "v": w[1:], "d": w.detach()}, grad="keep")
    assert tether.relate(copied["w"], copied["v"]).bytes == 12
    assert tether.relate(copied["w"], copied["d"]).memory == "same"
    assert not copied["d"].requires_grad
    (copied["v"].sum() + 2 * copied["w"].sum()).backward()
    assert w.grad.tolist() == [2, 3, 3, 3]
    apart = w.detach().requires_grad_()
    with pytest.raises(Refused, match="not their gradient graph"):
        tether.copy([w, apart], grad="keep")


def test_a_shared_tree_is_another_tree_on_the_same_memory():
    model = nn.Linear(2, 2)
    twin = tether.copy(model, memory="share")
    assert isinstance(twin.weight, nn.Parameter)
    assert tether.relate(twin.weight, model.weight).memory == "same"
    assert tether.relate(twin.weight, model.weight).gradient == "cut"


def test_a_tree_to_numpy_keeps_its_ties():
    w = torch.arange(4.0, requires_grad=True)
    arrays = tether.copy({"w": w, "v": w.detach()[1:]}, to="numpy")
    arrays["v"][:] = 9
    assert arrays["w"].tolist() == [0, 9, 9, 9]
    assert w.tolist() == [0, 1, 2, 3]
    with pytest.raises(Refused, match="state_dict"):
        tether.copy(nn.Linear(1, 1), to="numpy")
    with pytest.raises(Refused, match="host memory"):
        tether.copy({"w": w}, to="numpy", device="meta")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"to": "numpy", "grad": "keep"}, "do not flow"),
        ({"to": "numpy", "grad": "keep", "memory": "share"}, "do not flow"),
        ({"readonly": True}, "only a NumPy array"),
        ({"memory": "share", "non_blocking": True}, "waited for"),
        ({"memory": "share", "dtype": "float64"}, "other values"),
        ({"memory": "share", "device": "meta"}, "no memory in common"),
        ({"to": "dlpack", "grad": "keep"}, "do not flow"),
        ({"out": {"w": torch.ones(3)}}, "differs|shape|is .* now"),
    ],
)
def test_a_tree_is_refused_what_a_tensor_is(options, why):
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(Refused, match=why):
        tether.copy({"w": w}, **options)
    with pytest.raises(Refused, match=why):
        tether.plan({"w": w}, **options)
    with pytest.raises(Refused):
        tether.copy(w, **{**options, **({"out": torch.ones(3)} if "out" in options else {})})


def test_the_plan_of_a_refresh_says_that_it_writes():
    plan = tether.plan({"w": torch.ones(2)}, out={"w": torch.zeros(2)})
    assert [(name, each.calls) for name, each in plan.plans] == [("['w']", ("write",))]


def test_a_tree_of_read_only_arrays():
    w = torch.ones(2, requires_grad=True)
    shared = tether.copy({"w": w}, to="numpy", memory="share", readonly=True)["w"]
    assert not shared.flags.writeable
    assert tether.relate(shared, w).memory == "same"


def test_a_lazy_module_is_copied_before_it_has_weights():
    model = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 1))
    copied = tether.copy(model)
    assert isinstance(copied[0].weight, nn.UninitializedParameter)
    assert copied[0].weight is not model[0].weight
    copied(torch.ones(2, 5))
    assert copied[0].weight.shape == (3, 5)
    assert isinstance(model[0].weight, nn.UninitializedParameter)
    assert tether.relate(copied[1].weight, model[1].weight).memory == "none"


def test_a_refresh_checks_what_it_writes_into():
    model = Tied()
    copied = tether.copy(model)
    with torch.no_grad():
        model.embed.weight.add_(1)
        model.table.zero_()
    assert tether.copy(model, out=copied) is copied
    assert torch.equal(copied.embed.weight, model.embed.weight)
    assert copied.window.tolist() == [0, 0, 0, 0]
    with pytest.raises(Refused, match=r"'b'.*\(3,\).*\(2,\)"):
        tether.copy({"b": torch.ones(3)}, out={"b": torch.ones(2)})
    w = torch.ones(4)
    with pytest.raises(Refused, match="share its memory"):
        tether.copy([w, w[:2]], out=[torch.ones(4), torch.ones(2)])
    with pytest.raises(Refused, match="both trees"):
        tether.copy([w], out=[w])
    with pytest.raises(Refused, match="no other option"):
        tether.copy([w], out=[torch.ones(4)], dtype="float64")


def test_large_trees_lie_on_pooled_memory():
    tree = [torch.ones(3 << 20) for _ in range(4)] + [torch.ones(3)]
    before = tether.pool.stats().leased_blocks
    copied = tether.copy(tree)
    assert tether.pool.stats().leased_blocks == before + 4
    assert all(torch.equal(x, y) for x, y in zip(tree, copied, strict=True))
    again = tether.copy(copied)
    assert all(x.untyped_storage().nbytes() == x.nbytes for x in again)


def test_older_torch_without_a_foreach_clone(monkeypatch):
    monkeypatch.setattr(storages, "_FOREACH_CLONE", None)
    tree = {"a": torch.ones(3, requires_grad=True), "b": torch.zeros(2)}
    copied = tether.copy(tree)
    assert copied["a"].requires_grad
    assert copied["a"].is_leaf
    assert torch.equal(copied["b"], tree["b"])


def test_a_tensordict_keeps_its_ties():
    tensordict = pytest.importorskip("tensordict")
    w = torch.randn(4, 3)
    inner = tensordict.TensorDict({"c": w}, [4])
    copied = tether.copy({"td": tensordict.TensorDict({"a": w, "b": w[:, :2], "n": inner}, [4])})
    assert copied["td"]["a"] is copied["td"]["n", "c"]
    assert tether.relate(copied["td"]["a"], copied["td"]["b"]).memory == "overlaps"
    assert tether.relate(copied["td"]["a"], w).memory == "none"
    assert not tether.copy(tensordict.TensorDict({"a": w.requires_grad_() * 2}, [4]))[
        "a"
    ].requires_grad


def test_the_paths_are_those_the_user_writes():
    model = nn.Sequential(nn.Linear(1, 1))
    names = trees.paths({"model": model, "list": [torch.ones(1)]})
    assert set(names.values()) == {
        "['model'].0.weight", "['model'].0.bias", "['list'][0]",
    }  # fmt: skip
