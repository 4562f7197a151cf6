"""Libraries on top of PyTorch compute, recorded, the bits that they compute bare.

Each test skips where its library is not installed. ``TETHER_ALL=1`` takes every architecture.
"""

import importlib.util
import os

import pytest

from differential import preload, same

ALL = bool(os.environ.get("TETHER_ALL"))
needs = {
    name: pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"needs {name}")
    for name in ("transformers", "accelerate", "peft", "lightning", "torch_geometric",
                 "torchmetrics", "tensordict")
}  # fmt: skip

TINY = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": 40, "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 8,
    "d_model": 16, "n_layer": 2, "n_head": 2, "n_embd": 16, "d_ff": 32, "num_layers": 2, "num_heads": 2,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "ffn_dim": 32, "d_kv": 8, "n_positions": 64, "n_layers": 2,
    "n_heads": 2, "dim": 16, "hidden_dim": 32, "embedding_size": 16, "word_embed_proj_dim": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "image_size": 16, "patch_size": 8, "num_channels": 3,
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
}  # fmt: skip
TEXT = [
    "Bert",
    "Roberta",
    "Electra",
    "Albert",
    "DistilBert",
    "DebertaV2",
    "MPNet",
    "GPT2",
    "GPTNeoX",
    "GPTJ",
    "OPT",
    "Bloom",
    "Llama",
    "Mistral",
    "Mixtral",
    "Qwen2",
    "Qwen3",
    "Gemma",
    "Phi",
    "Falcon",
    "CodeGen",
    "StableLm",
    "Olmo",
    "Mamba",
    "Starcoder2",
    "XLNet",
    "RoFormer",
    "ConvBert",
    "Funnel",
    "T5",
    "Bart",
    "Pegasus",
    "Marian",
    "MBart",
]
IMAGES = ["ViT", "Deit", "Dinov2", "Beit"]

MODEL = """
import transformers, warnings
transformers.utils.logging.set_verbosity_error()
name, tiny, image = NAME, TINY, IMAGE
Config = getattr(transformers, name + "Config")
wanted = {k: v for k, v in tiny.items()}
if name == "Falcon": wanted.pop("num_key_value_heads")
config = Config(**wanted)
Model = getattr(transformers, name + "Model")
model = Model(config)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(2):
    model.train(step == 0)
    if image: batch = {"pixel_values": torch.randn(2, 3, 16, 16)}
    else:
        ids = torch.randint(3, 40, (2, 7)); batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if config.is_encoder_decoder: batch["decoder_input_ids"] = ids
    out = model(**batch)
    first = out[0]
    loss = first.float().square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    show(first, loss)
model.eval()
with torch.no_grad(): show(model(**batch)[0])
show([p for p in model.parameters()][:40], [p.grad for p in model.parameters() if p.grad is not None][:40])
show(len(model.state_dict()))
"""


@needs["transformers"]
@pytest.mark.parametrize("name", TEXT + IMAGES if ALL else TEXT[:2] + TEXT[6:9] + TEXT[-5:-4])
def test_transformers(name):
    preload("transformers")
    program = MODEL.replace("NAME", repr(name)).replace("TINY", repr(TINY))
    program = program.replace("IMAGE", repr(name in IMAGES))
    watched = same(program, may_fail=True)
    if watched.code != 0:
        pytest.skip(f"{name} does not take this configuration: {watched.stderr.splitlines()[-1]}")
    assert watched.operations.count("step") == 2


PROGRAMS = {
    "transformers": """
import transformers
c = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=64, bos_token_id=1, eos_token_id=2)
m = transformers.GPT2LMHeadModel(c).eval()
show(m.generate(torch.tensor([[1, 5, 7]]), max_new_tokens=6, do_sample=False, pad_token_id=0))
show(m.generate(torch.tensor([[1, 5, 7]]), max_new_tokens=6, do_sample=True, pad_token_id=0))
m.gradient_checkpointing_enable(); m.train()
ids = torch.randint(3, 40, (2, 9)); loss = m(ids, labels=ids).loss; loss.backward(); show(loss, [p.grad for p in m.parameters()])
""",
    "accelerate": """
from accelerate import Accelerator
a = Accelerator(cpu=True, gradient_accumulation_steps=2)
m = torch.nn.Linear(4, 2); o = torch.optim.SGD(m.parameters(), lr=0.1)
d = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=2)
m, o, d = a.prepare(m, o, d)
for x in d:
    with a.accumulate(m):
        loss = m(x).square().mean(); a.backward(loss); a.clip_grad_norm_(m.parameters(), 1.0); o.step(); o.zero_grad(); show(loss)
show(list(m.parameters()))
""",
    "peft": """
import transformers, peft
c = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40, n_positions=64)
m = peft.get_peft_model(transformers.GPT2LMHeadModel(c), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))
o = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=0.1); ids = torch.randint(0, 40, (2, 6))
for _ in range(2): loss = m(input_ids=ids, labels=ids).loss; loss.backward(); o.step(); o.zero_grad(); show(loss)
merged = m.merge_and_unload(); show(merged(ids).logits)
""",
    "lightning": """
import logging, warnings; warnings.filterwarnings("ignore"); logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import lightning as L
class Net(L.LightningModule):
    def __init__(self): super().__init__(); self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    def training_step(self, batch, i): loss = self.net(batch).square().mean(); self.log("loss", loss); show(loss); return loss
    def validation_step(self, batch, i): self.log("v", self.net(batch).mean())
    def configure_optimizers(self): o = torch.optim.Adam(self.parameters()); return [o], [torch.optim.lr_scheduler.StepLR(o, 1)]
L.seed_everything(3, verbose=False)
data = torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4, shuffle=True)
t = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=0.5)
n = Net(); t.fit(n, data, data); show(list(n.parameters()), {k: float(v) for k, v in t.callback_metrics.items()})
""",
    "torch_geometric": """
from torch_geometric.nn import GCNConv, GATConv, SAGEConv, GINConv, global_mean_pool
from torch_geometric.data import Data, Batch
from torch_geometric.loader import DataLoader
edges = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 3]])
graphs = [Data(x=torch.randn(4, 5), edge_index=edges) for _ in range(4)]
convs = torch.nn.ModuleList([GCNConv(5, 6), GATConv(6, 6, heads=2, concat=False), SAGEConv(6, 6), GINConv(torch.nn.Linear(6, 3))])
o = torch.optim.Adam(convs.parameters())
for b in DataLoader(graphs, batch_size=2):
    x = b.x
    for c in convs: x = c(x, b.edge_index).relu()
    loss = global_mean_pool(x, b.batch).square().sum(); o.zero_grad(); loss.backward(); o.step(); show(x, loss)
show(list(convs.parameters()))
""",
    "torchmetrics": """
import torchmetrics
m = torchmetrics.MetricCollection([torchmetrics.Accuracy("multiclass", num_classes=3), torchmetrics.F1Score("multiclass", num_classes=3), torchmetrics.AUROC("multiclass", num_classes=3)])
for _ in range(3): m.update(torch.randn(8, 3).softmax(-1), torch.randint(0, 3, (8,)))
show(m.compute()); m.reset(); e = torchmetrics.MeanSquaredError(); show(e(torch.ones(3), torch.zeros(3)), e.clone().compute())
""",
    "tensordict": """
from tensordict import TensorDict, tensorclass
from tensordict.nn import TensorDictModule, TensorDictParams
t = TensorDict({"a": torch.randn(3, 4), "b": {"c": torch.randn(3)}}, batch_size=[3])
show(t.clone()["a"], t[0]["b", "c"], torch.stack([t, t]).to_tensordict()["a"], t.apply(lambda x: x * 2)["a"])
m = TensorDictModule(torch.nn.Linear(4, 2), in_keys=["a"], out_keys=["y"]); show(m(t)["y"]); m(t)["y"].sum().backward()
p = TensorDict.from_module(m); p2 = p.clone()
with p2.to_module(m): show(m(t)["y"])
show([x.grad for x in m.parameters()]); t.memmap_like() if False else None; t["a"].add_(1); show(t["a"])
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with(name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")
    watched = same(PROGRAMS[name])
    assert watched.operations
    assert not [gap for gap in watched.gaps if gap == "failed"]
