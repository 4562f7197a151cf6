# ruff: noqa: E501 -- the programs are shown as they are run
"""The programs in which `_needless.py` looks for copies that nobody needed.

One for each architecture of transformers, made from a tiny configuration: three training steps on
random numbers. And training loops as the pages of other packages show them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any, NamedTuple

PACKAGES = ("torch", "transformers", "accelerate", "peft", "lightning", "torch_geometric",
            "torchmetrics", "tensordict", "diffusers", "gpytorch", "kornia")  # fmt: skip


class Program(NamedTuple):
    """A program's text, and of an architecture what makes it at its real size."""

    text: str
    real: tuple[str, str] | None = None  # its class name without "Model", and what it takes


TINY = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": 40, "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 8,
    "d_model": 16, "n_layer": 2, "n_head": 2, "n_embd": 16, "d_ff": 32, "num_layers": 2,
    "num_heads": 2, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "ffn_dim": 32,
    "d_kv": 8, "n_positions": 64, "n_layers": 2, "n_heads": 2, "dim": 16, "hidden_dim": 32,
    "embedding_size": 16, "word_embed_proj_dim": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "image_size": 16, "patch_size": 8, "num_channels": 3, "num_experts": 4,
    "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
}  # fmt: skip
WAVE = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "mask_time_length": 2,
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
STAGES = {"num_channels": 3, "depths": [1, 1], "hidden_sizes": [8, 16], "embedding_size": 8}
PYRAMID = {
    "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16],
    "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
    "decoder_hidden_size": 8,
}  # fmt: skip
TOWER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 32}  # fmt: skip
PAIR = {
    "text_config": {**TOWER, "vocab_size": 40, "max_position_embeddings": 64, "eos_token_id": 2,
                    "projection_size": 16},
    "vision_config": {**TOWER, "image_size": 16, "patch_size": 8}, "projection_dim": 16,
}  # fmt: skip

# What a model takes, as an expression of `config` and of the sizes `rows`, `tokens`, `samples`.
TAKES = {
    "text": '{"input_ids": tokens(), "attention_mask": ones()}',
    "both": '{"input_ids": tokens(), "attention_mask": ones(), "decoder_input_ids": tokens()}',
    "ids": '{"input_ids": tokens()}',
    "image": '{"pixel_values": torch.randn(rows, 3, *size)}',
    "wave": '{"input_values": torch.randn(rows, samples)}',
    "spoken": '{"input_features": torch.randn(rows, 80, 2 * config.max_source_positions),'
              ' "decoder_input_ids": tokens()}',
    "features": '{"input_features": torch.randn(rows, frames, 160)}',
    "spectrogram": '{"input_values": torch.randn(rows, config.max_length, config.num_mel_bins)}',
    "pair": '{"input_ids": tokens(), "attention_mask": ones(),'
            ' "pixel_values": torch.randn(rows, 3, *size)}',
    "series": '{"past_values": torch.randn(rows, config.context_length, 3)}',
}  # fmt: skip
_SAME = {
    "text": "Bert Roberta Electra Albert DistilBert DebertaV2 Deberta MPNet GPT2 GPTNeoX OPT Bloom"
    " Llama Mistral Mixtral Qwen2 Qwen3 Qwen3Moe Gemma Gemma2 Phi Phi3 StableLm Olmo Olmo2 Mamba"
    " FalconMamba Starcoder2 RoFormer ConvBert Longformer BigBird Nystromformer Rwkv GptOss Cohere"
    " Granite Nemotron Persimmon XGLM MobileBert SqueezeBert IBert Splinter Mpt GPTBigCode"
    " ModernBert Esm XLM Flaubert MegatronBert RemBert Lfm2 SmolLM3 Glm MiniMax Yoso Mra CTRL"
    " BioGpt",
    "both": "T5 Bart Pegasus Marian MBart LED BlenderbotSmall UMT5 LongT5 M2M100 PLBart NllbMoe",
    "image": "ViT DeiT Dinov2 Beit ViTMAE ViTMSN DPT VitDet",
    "wave": "Wav2Vec2 Hubert WavLM SEW SEWD UniSpeech UniSpeechSat Data2VecAudio Wav2Vec2Conformer",
}
OTHER: dict[str, tuple[str, dict[str, Any]]] = {
    "FNet": ("ids", TINY),
    "GPTJ": ("text", {**TINY, "rotary_dim": 4}),
    "CodeGen": ("text", {**TINY, "n_head": 4, "n_embd": 32, "num_attention_heads": 4, "hidden_size": 32, "rotary_dim": 4}),
    "Falcon": ("text", {**TINY, "num_key_value_heads": None, "head_dim": None}),
    "XLNet": ("text", {**TINY, "max_position_embeddings": None, "d_inner": 32}),
    "Mamba2": ("text", {**TINY, "num_heads": 4, "head_dim": 8, "n_groups": 2, "state_size": 8}),
    "Swin": ("image", {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
                       "num_heads": [2, 2], "window_size": 4}),
    "Swinv2": ("image", {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
                         "num_heads": [2, 2], "window_size": 4}),
    "ConvNext": ("image", {**STAGES, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}),
    "ResNet": ("image", {**STAGES, "layer_type": "basic"}),
    "RegNet": ("image", {**STAGES, "groups_width": 4}),
    "Segformer": ("image", PYRAMID),
    "GLPN": ("image", PYRAMID),
    "Cvt": ("image", {"embed_dim": [8, 16, 16], "depth": [1, 1, 1], "num_heads": [1, 2, 2], "image_size": 64, "cls_token": [False] * 3,
                       "layer_norm_eps": 1e-5}),
    "MobileViT": ("image", {"image_size": 64, "hidden_sizes": [8, 8, 16],
                            "neck_hidden_sizes": [4, 4, 8, 8, 8, 16, 16],
                            "num_attention_heads": 2}),
    "MobileNetV2": ("image", {"image_size": 32, "depth_multiplier": 0.35}),
    "PoolFormer": ("image", {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}),
    "FocalNet": ("image", {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 1],
                           "focal_levels": [2, 2], "focal_windows": [3, 3],
                           "hidden_sizes": [8, 16]}),
    "Levit": ("image", {"image_size": 32, "hidden_sizes": [16, 16, 16], "depths": [1, 1, 1],
                        "num_attention_heads": [2, 2, 2], "key_dim": [4, 4, 4]}),
    "Whisper": ("spoken", {**TINY, "num_mel_bins": 80, "max_source_positions": 20,
                           "max_target_positions": 40, "decoder_start_token_id": 1}),
    "Wav2Vec2Bert": ("features", {**TOWER, "feature_projection_input_dim": 160,
                                  "mask_time_length": 2}),
    "ASTModel": ("spectrogram", {**TOWER, "patch_size": 8, "max_length": 24, "num_mel_bins": 16,
                                 "frequency_stride": 8, "time_stride": 8}),
    "CLIP": ("pair", PAIR),
    "Siglip": ("pair", PAIR),
    "Blip": ("pair", {**PAIR, "text_config": {**PAIR["text_config"],
                                              "encoder_hidden_size": 16}}),
    "PatchTST": ("series", {"num_input_channels": 3, "context_length": 16, "patch_length": 4,
                            "patch_stride": 4, "d_model": 16, "num_hidden_layers": 2,
                            "num_attention_heads": 2, "ffn_dim": 32}),
    "PatchTSMixer": ("series", {"num_input_channels": 3, "context_length": 16, "patch_length": 4,
                                "patch_stride": 4, "d_model": 16, "num_layers": 2}),
}  # fmt: skip

MODEL = """
import torch
import transformers

def tokens():
    return torch.randint(3, 40, (rows, length))

def ones():
    return torch.ones(rows, length, dtype=torch.long)

transformers.utils.logging.set_verbosity_error()
torch.manual_seed(0)
rows, length, samples, frames, size = {sizes}
config = transformers.{config}({options})
model = transformers.{model}(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    out = model(**{takes})
    loss = sum(
        one.square().mean()
        for one in out.to_tuple()
        if isinstance(one, torch.Tensor) and one.is_floating_point()
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def names_of(name: str) -> tuple[str, str]:
    """Return the classes of an architecture: its configuration's and its model's."""
    return name.removesuffix("Model") + "Config", name.removesuffix("Model") + "Model"


def _model(name: str, takes: str, options: dict[str, Any]) -> Program:
    config, model = names_of(name)
    side = options.get("image_size", PAIR["vision_config"]["image_size"])
    side = 32 if takes == "image" and "image_size" not in options else side
    given = ", ".join(f"{key}={value!r}" for key, value in options.items() if value is not None)
    text = MODEL.format(sizes=(2, 8, 400, 20, (side, side)), config=config, model=model,
                        options=given, takes=TAKES[takes])  # fmt: skip
    return Program(text, (name, takes))


def real(program: Program, wanted: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the bytes and calls of some lines in one training step at the model's real size.

    Nothing is computed: all of it is on the meta device. Where a model cannot be run to the end
    there, what was counted until then.
    """
    import torch
    import transformers

    assert program.real is not None
    name, takes = program.real
    config_class, model_class = names_of(name)
    places = {(row["file"], row["line"], row["operation"]) for row in wanted}
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    class Meter(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            frame, name = sys._getframe(1), getattr(func, "__name__", "")
            file = frame.f_code.co_filename
            for place in places:
                if place[1] == frame.f_lineno and place[2] == name and file.endswith(place[0]):
                    row = found[f"{place[0]}:{place[1]}:{place[2]}"]
                    row[0] += result.nbytes
                    row[1] += 1
            return result

    with torch.device("meta"):
        config = getattr(transformers, config_class)()
        model = getattr(transformers, model_class)(config).train()
        size = getattr(getattr(config, "vision_config", config), "image_size", None) or 224
        most = getattr(config, "max_position_embeddings", None) or 0
        length = min(512, most) if most > 0 else 512
        if takes == "pair":
            length = min(length, config.text_config.max_position_embeddings)
        names = {
            "torch": torch, "config": config, "rows": 1, "samples": 160_000, "frames": 500,
            "size": (size, size) if isinstance(size, int) else tuple(size)[-2:],
            "tokens": lambda: torch.zeros(1, length, dtype=torch.long),
            "ones": lambda: torch.ones(1, length, dtype=torch.long),
        }  # fmt: skip
        with Meter():
            try:
                out = model(**eval(TAKES[takes], names))
                sum(
                    one.float().square().mean()
                    for one in out.to_tuple()
                    if isinstance(one, torch.Tensor) and one.is_floating_point()
                ).backward()
            except RuntimeError:  # some models ask for a value, which is not there
                if not found:
                    raise
    return dict(found)


LOOPS = {
    "peft": """
import torch
import peft, transformers

torch.manual_seed(0)
config = transformers.LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, vocab_size=40, max_position_embeddings=64)
model = transformers.LlamaForCausalLM(config)
model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_dropout=0.1,
    target_modules=["q_proj", "v_proj"]))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for step in range(3):
    ids = torch.randint(3, 40, (2, 8))
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(loss.item())
weights = peft.get_peft_model_state_dict(model)
peft.set_peft_model_state_dict(model, weights)
merged = model.merge_and_unload()
with torch.no_grad():
    print(merged(ids).logits.sum().item())
""",
    "peft_kinds": """
import torch
import peft, transformers

torch.manual_seed(0)
kinds = [
    peft.LoraConfig(r=4, use_dora=True, target_modules=["q_proj", "v_proj"]),
    peft.IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    peft.LoHaConfig(r=4, target_modules=["q_proj"]), peft.LoKrConfig(r=4, target_modules=["q_proj"]),
    peft.AdaLoraConfig(r=4, target_modules=["q_proj"], total_step=10),
    peft.VeraConfig(r=4, target_modules=["q_proj"]),
    peft.OFTConfig(oft_block_size=4, target_modules=["q_proj"]),
    peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
    peft.PrefixTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM"),
]
for kind in kinds:
    config = transformers.LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, vocab_size=40, max_position_embeddings=64)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(config), kind)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(2):
        ids = torch.randint(3, 40, (2, 8))
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(loss.item())
""",
    "accelerate": """
import torch
from accelerate import Accelerator

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for epoch in range(2):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step(); scheduler.step(); optimizer.zero_grad()
        print(accelerator.gather_for_metrics(loss.detach()).mean().item())
state = accelerator.get_state_dict(model)
accelerator.unwrap_model(model).load_state_dict(state)
""",
    "lightning": """
import logging, warnings
import torch
import lightning as L

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    def training_step(self, batch, index):
        loss = self.net(batch).square().mean()
        self.log("loss", loss, on_epoch=True)
        print(loss.item())
        return loss
    def validation_step(self, batch, index):
        self.log("held out", self.net(batch).square().mean())
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)

L.seed_everything(3, verbose=False)
data = torch.utils.data.DataLoader(torch.randn(64, 16), batch_size=8, shuffle=True)
trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=0.5,
    callbacks=[L.pytorch.callbacks.StochasticWeightAveraging(1e-2)])
net = Net()
trainer.fit(net, data, data)
print({key: float(value) for key, value in trainer.callback_metrics.items()})
""",
    "torch_geometric": """
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, PNAConv,
    SAGEConv, TransformerConv, ChebConv, ARMAConv, EdgeConv, TopKPooling, global_mean_pool)

torch.manual_seed(0)
edges = torch.tensor([[0, 1, 2, 3, 1, 4, 5, 2], [1, 2, 3, 0, 3, 5, 4, 4]])
graphs = [Data(x=torch.randn(6, 8), edge_index=edges, y=torch.randn(1)) for _ in range(8)]
convs = torch.nn.ModuleList([GCNConv(8, 8), GATConv(8, 8, heads=2, concat=False), GATv2Conv(8, 8),
    SAGEConv(8, 8), GINConv(torch.nn.Linear(8, 8)), GraphConv(8, 8), TransformerConv(8, 8),
    ChebConv(8, 8, 3), ARMAConv(8, 8), EdgeConv(torch.nn.Linear(16, 8)),
    PNAConv(8, 8, ["mean", "max", "std"], ["identity", "amplification"], torch.tensor([0, 6, 8, 2]))])
pool = TopKPooling(8, 0.5)
optimizer = torch.optim.Adam([*convs.parameters(), *pool.parameters()])
for epoch in range(2):
    for batch in DataLoader(graphs, batch_size=4):
        x = batch.x
        for conv in convs:
            x = conv(x, batch.edge_index).relu() + x
        x, index, _, which, _, _ = pool(x, batch.edge_index, None, batch.batch)
        loss = (global_mean_pool(x, which).sum(1) - batch.y).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(loss.item())
""",
    "torchmetrics": """
import torch
import torchmetrics as tm

torch.manual_seed(0)
k = {"task": "multiclass", "num_classes": 4}
metrics = tm.MetricCollection([tm.Accuracy(**k), tm.F1Score(**k), tm.AUROC(**k), tm.Precision(**k),
    tm.ConfusionMatrix(**k), tm.AveragePrecision(**k), tm.CohenKappa(**k), tm.CalibrationError(**k)])
errors = tm.MetricCollection([tm.MeanSquaredError(), tm.R2Score(), tm.PearsonCorrCoef(),
    tm.SpearmanCorrCoef(), tm.MeanAbsoluteError(), tm.ExplainedVariance()])
images = tm.MetricCollection([tm.image.StructuralSimilarityIndexMeasure(),
    tm.image.PeakSignalNoiseRatio(data_range=1.0), tm.image.TotalVariation()][:2])
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(4):
    x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
    out = model(x)
    loss = torch.nn.functional.cross_entropy(out, y)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    metrics.update(out.softmax(-1), y)
    errors.update(out[:, 0].detach(), y.float())
    images.update(torch.rand(1, 1, 32, 32), torch.rand(1, 1, 32, 32))
    print(loss.item())
for one in (metrics, errors, images):
    print({key: value.tolist() for key, value in one.compute().items()})
    one.reset()
""",
    "tensordict": """
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential

torch.manual_seed(0)
net = TensorDictSequential(
    TensorDictModule(torch.nn.Linear(16, 32), in_keys=["x"], out_keys=["h"]),
    TensorDictModule(torch.nn.Linear(32, 1), in_keys=["h"], out_keys=["out"]))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
target = TensorDict.from_module(net).data.clone()
data = TensorDict({"x": torch.randn(64, 16), "y": torch.randn(64, 1)}, batch_size=[64])
for epoch in range(2):
    for batch in data.split(16):
        batch = net(batch.clone())
        loss = (batch["out"] - batch["y"]).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        target.lerp_(TensorDict.from_module(net).data, 0.1)
        print(loss.item())
with torch.no_grad(), target.to_module(net):
    both = torch.stack([net(data.clone()), net(data.clone())]).contiguous()
    print(both.to_tensordict()["out"].sum().item())
""",
}

GENERATES = """
import torch
import transformers

transformers.utils.logging.set_verbosity_error()
torch.manual_seed(0)
model = transformers.{model}(transformers.{config}({options})).eval()
ids = torch.randint(3, 40, (2, 6))
for how in (
    dict(do_sample=False),
    dict(do_sample=True, top_k=5, top_p=0.9, temperature=0.7, repetition_penalty=1.1),
    dict(num_beams=3, no_repeat_ngram_size=2),
    dict(num_beams=2, num_return_sequences=2, do_sample=True),
):
    print(model.generate(ids, max_new_tokens=5, pad_token_id=0, **how).tolist())
"""
GENERATING = {
    "LlamaForCausalLM": {},
    "GPT2LMHeadModel": {},
    "T5ForConditionalGeneration": {},
    "BartForConditionalGeneration": {},
    "MambaForCausalLM": {},
    "BloomForCausalLM": {},
    "Gemma2ForCausalLM": {},
    "Qwen3MoeForCausalLM": {},
    "GptOssForCausalLM": {},
    "Lfm2ForCausalLM": {},
    "OPTForCausalLM": {},
    "MarianMTModel": {"decoder_start_token_id": 0},
    "XGLMForCausalLM": {},
}
HEADS = """
import torch
import transformers

transformers.utils.logging.set_verbosity_error()
torch.manual_seed(0)
model = transformers.{model}(transformers.{config}({options})).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    ids = torch.randint(3, 40, (2, 8))
    out = model(input_ids=ids, attention_mask=torch.ones_like(ids), {labels})
    optimizer.zero_grad()
    out.loss.backward()
    optimizer.step()
    print(out.loss.item(), [one.sum().item() for one in out.to_tuple()[1:] if torch.is_tensor(one)])
"""
SPANS = "start_positions=torch.tensor([1, 2]), end_positions=torch.tensor([3, 4])"
HEADED = {
    "BertForQuestionAnswering": SPANS,
    "DebertaV2ForQuestionAnswering": SPANS,
    "LlamaForQuestionAnswering": SPANS,
    "BigBirdForMaskedLM": "labels=ids",
    "ConvBertForMaskedLM": "labels=ids",
    "BertForPreTraining": "labels=ids, next_sentence_label=torch.tensor([0, 1])",
    "GPT2ForSequenceClassification": "labels=torch.tensor([0, 1])",
    "LlamaForCausalLM": "labels=ids",
    "T5ForConditionalGeneration": "labels=ids, decoder_input_ids=ids",
    "BartForConditionalGeneration": "labels=ids",
    "ElectraForTokenClassification": "labels=torch.ones_like(ids)",
    "XLNetLMHeadModel": "labels=ids",
    "MixtralForCausalLM": "labels=ids, output_router_logits=True",
}


def base_of(model: str) -> str:
    """Return the architecture of a model with a head, from its class name."""
    return model.partition("For")[0].removesuffix("LMHeadModel").removesuffix("MTModel")


def _headed(text: str, model: str, more: dict[str, Any], labels: str = "") -> Program:
    base = base_of(model)
    options = {**(OTHER[base][1] if base in OTHER else TINY), **more}
    given = ", ".join(f"{key}={value!r}" for key, value in options.items() if value is not None)
    return Program(text.format(config=f"{base}Config", model=model, options=given, labels=labels))


SAME = {name for names in _SAME.values() for name in names.split()}

LOOPS |= {
    "diffusers": """
import torch
import diffusers
from diffusers.training_utils import EMAModel

torch.manual_seed(0)
net = diffusers.UNet2DModel(sample_size=16, in_channels=3, out_channels=3, layers_per_block=1,
    block_out_channels=(8, 16), norm_num_groups=4, attention_head_dim=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
ema = EMAModel(net.parameters(), decay=0.9)
scheduler = diffusers.DDPMScheduler(num_train_timesteps=20)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(3):
    clean, noise = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16)
    times = torch.randint(0, 20, (2,))
    out = net(scheduler.add_noise(clean, noise, times), times).sample
    loss = torch.nn.functional.mse_loss(out, noise)
    optimizer.zero_grad(); loss.backward(); optimizer.step(); ema.step(net.parameters())
    print(loss.item())
net.eval()
ema.store(net.parameters()); ema.copy_to(net.parameters())
for name in ("DDPM", "DDIM", "PNDM", "EulerDiscrete", "DPMSolverMultistep", "UniPCMultistep", "HeunDiscrete",
             "EulerAncestralDiscrete", "DEISMultistep", "FlowMatchEulerDiscrete"):
    scheduler = getattr(diffusers, name + "Scheduler")(num_train_timesteps=20)
    scheduler.set_timesteps(4)
    x = torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        for t in scheduler.timesteps:
            if hasattr(scheduler, "scale_model_input"):
                given = scheduler.scale_model_input(x, t)
            else:
                given = x
            x = scheduler.step(net(given, t).sample, t, x).prev_sample
    print(name, x.sum().item())
ema.restore(net.parameters())
""",
    "diffusers_models": """
import torch
import diffusers

torch.manual_seed(0)
models = [
    (diffusers.UNet2DConditionModel(sample_size=16, in_channels=4, out_channels=4, layers_per_block=1,
        block_out_channels=(8, 16), norm_num_groups=4, attention_head_dim=4, cross_attention_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")),
     lambda: (torch.randn(2, 4, 16, 16), torch.tensor([3, 7]), torch.randn(2, 5, 8))),
    (diffusers.AutoencoderKL(block_out_channels=(8, 16), norm_num_groups=4, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2),
     lambda: (torch.randn(2, 3, 16, 16),)),
    (diffusers.VQModel(block_out_channels=(8,), norm_num_groups=4, num_vq_embeddings=16),
     lambda: (torch.randn(2, 3, 16, 16),)),
    (diffusers.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=4, in_channels=4,
        num_layers=1, sample_size=8, norm_num_groups=2, num_embeds_ada_norm=10),
     lambda: (torch.randn(2, 4, 8, 8), torch.tensor([1, 2]), torch.tensor([1, 2]))),
]
for model, make in models:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(2):
        loss = model(*make())[0].square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(loss.item())
""",
    "gpytorch": """
import torch
import gpytorch

torch.manual_seed(0)
x = torch.linspace(0, 1, 40)
y = (6 * x).sin() + 0.1 * torch.randn(40)

class Process(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel() + gpytorch.kernels.MaternKernel())
    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

likelihood = gpytorch.likelihoods.GaussianLikelihood()
process = Process(likelihood)
optimizer = torch.optim.Adam(process.parameters(), lr=0.1)
likelihood_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
for step in range(3):
    optimizer.zero_grad()
    loss = -likelihood_of(process(x), y)
    loss.backward(); optimizer.step()
    print(loss.item())
process.eval(); likelihood.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    told = likelihood(process(torch.linspace(0, 1, 11)))
    print(told.mean.sum().item(), told.variance.sum().item())
""",
    "kornia": """
import torch
import kornia as K

torch.manual_seed(0)
augment = K.augmentation.AugmentationSequential(
    K.augmentation.RandomHorizontalFlip(p=0.5), K.augmentation.ColorJitter(0.2, 0.2, 0.2, 0.1, p=1.0),
    K.augmentation.RandomAffine(20.0, p=1.0), K.augmentation.RandomErasing(p=1.0),
    K.augmentation.RandomGaussianBlur((3, 3), (0.1, 2.0), p=1.0), data_keys=["input", "mask"])
net = torch.nn.Conv2d(3, 4, 3)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(3):
    images, masks = torch.rand(2, 3, 32, 32), torch.rand(2, 1, 32, 32)
    images, masks = augment(images, masks)
    edges = K.filters.sobel(images) + K.filters.gaussian_blur2d(images, (3, 3), (1.0, 1.0))
    small = K.geometry.resize(K.color.rgb_to_lab(images), (16, 16))
    turned = K.geometry.rotate(K.enhance.equalize(images), torch.tensor([10.0, 20.0]))
    loss = net(edges).square().mean() + net(turned).square().mean() + masks.mean() + small.mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(loss.item())
""",
    "torch_optimizers": """
import copy
import torch
from torch import nn

for name in ("SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam",
             "RMSprop", "Rprop", "LBFGS"):
    for foreach in (False, True):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
        kind = getattr(torch.optim, name)
        more = {"line_search_fn": "strong_wolfe"} if name == "LBFGS" else {"foreach": foreach}
        optimizer = kind(net.parameters(), lr=1e-2, **more)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
        x, y = torch.randn(32, 16), torch.randn(32, 1)
        def closure():
            optimizer.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            return loss
        for step in range(3):
            print(name, optimizer.step(closure).item())
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scheduler.step()
        state = optimizer.state_dict()
        again = kind(net.parameters(), lr=1e-2, **more)
        again.load_state_dict(state)
        print(again.step(closure).item())
""",
    "torch_utils": """
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, parameters_to_vector, vector_to_parameters
from torch.optim.swa_utils import AveragedModel, update_bn, get_ema_multi_avg_fn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(),
    nn.Linear(32, 32), nn.ReLU(),
    nn.TransformerEncoderLayer(32, 2, 32, batch_first=True), nn.Linear(32, 4))
other = nn.Sequential(parametrizations.spectral_norm(nn.Linear(16, 32)), nn.ReLU(),
    parametrizations.weight_norm(nn.Linear(32, 32)), parametrizations.orthogonal(nn.Linear(32, 4)))
prune.l1_unstructured(other[0], "bias", 0.3)
recurrent = nn.LSTM(4, 8, batch_first=True, bidirectional=True)
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.AdamW([*net.parameters(), *other.parameters(), *recurrent.parameters()], lr=1e-2)
for step in range(3):
    x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
    out = net(x) + other(x)
    packed = nn.utils.rnn.pack_padded_sequence(out.view(2, 4, 4), torch.tensor([4, 2]), batch_first=True)
    seen, _ = nn.utils.rnn.pad_packed_sequence(recurrent(packed)[0], batch_first=True)
    loss = nn.functional.cross_entropy(out, y) + seen.square().mean()
    loss = loss - torch.distributions.Dirichlet(out.exp()).rsample().log().mean() * 0.01
    loss = loss + torch.distributions.MixtureSameFamily(torch.distributions.Categorical(logits=out),
        torch.distributions.Normal(out, 1.0)).log_prob(torch.zeros(8)).mean() * 0.01
    optimizer.zero_grad(); loss.backward(); optimizer.step(); average.update_parameters(net)
    print(loss.item())
update_bn([torch.randn(8, 16) for _ in range(2)], average)
vector_to_parameters(parameters_to_vector(recurrent.parameters()), recurrent.parameters())
print(sum(one.sum().item() for one in average.parameters()))
""",
    "trainer": """
import tempfile
import torch
import transformers

transformers.utils.logging.set_verbosity_error()
transformers.set_seed(0)
config = transformers.LlamaConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, vocab_size=40, max_position_embeddings=64)
model = transformers.LlamaForCausalLM(config)
ids = torch.randint(3, 40, (16, 8))
data = [{"input_ids": one, "labels": one.clone()} for one in ids]
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(folder, per_device_train_batch_size=4, max_steps=5,
        report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", logging_steps=1,
        eval_strategy="steps", eval_steps=2, gradient_accumulation_steps=2)
    trainer = transformers.Trainer(model, arguments, train_dataset=data, eval_dataset=data[:8])
    trainer.train()
print([one.get("loss") for one in trainer.state.log_history])
""",
}

PROGRAMS: dict[str, Program] = {
    **{name: _model(name, takes, WAVE if takes == "wave" else TINY)
       for takes, names in _SAME.items() for name in names.split()},
    **{name: _model(name, takes, options) for name, (takes, options) in OTHER.items()},
    **{f"generate_{name}": _headed(GENERATES, name, more) for name, more in GENERATING.items()},
    **{name: _headed(HEADS, name, {}, labels) for name, labels in HEADED.items()},
    **{name: Program(text) for name, text in LOOPS.items()},
}  # fmt: skip
