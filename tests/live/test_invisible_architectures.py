"""Architectures of transformers compute, recorded, the bits that they compute bare.

A tiny configuration of each, random weights, nothing downloaded: the outputs of a forward pass in
training, every gradient, the sums of the parameters after a step of SGD, the buffers, an evaluation
without gradients, the random state, and the warnings with their file and line. ``TETHER_ALL=1``
takes all of them, without it a slice. A configuration that this version of transformers refuses
is skipped, and a campaign over less than a hundred fails.
"""

import importlib.util
import os

import pytest

from differential import preload, same

ALL = bool(os.environ.get("TETHER_ALL"))
NAMES = (
    "afmoe aimv2 aimv2_vision_model albert altclip apertus arcee aria aria_text audioflamingo3 "
    "axk2 aya_vision bart beam beit bert bert-generation big_bird bigbird_pegasus biogpt bitnet "
    "blenderbot blenderbot-small blip bloom camembert canine chinese_clip "
    "chinese_clip_vision_model clip clip_text_model clip_vision_model clipseg cohere cohere2 "
    "cohere2_moe cohere2_vision convbert cosmos3_omni cpmant ctrl cwm data2vec-text "
    "data2vec-vision deberta deberta-v2 deepseek_v2 deepseek_v32 deepseek_v4 deepseek_vl deit "
    "diffllama dinov2 dinov2_with_registers dinov3_convnext dinov3_vit distilbert doge dpr dpt "
    "electra ernie ernie4_5 ernie4_5_moe esm esmc eurobert exaone4 exaone_moe falcon_h1 "
    "falcon_mamba flaubert flex_olmo flint fnet focalnet fsmt fuyu gemma gemma2 gemma3 "
    "gemma3_text git glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa glmasr glmasr_encoder got_ocr2 "
    "gpt-sw3 gpt2 gpt_bigcode gpt_neox gpt_neox_japanese gpt_oss granite granite_docling_text "
    "granite_docling_vision granite_swa granitemoe granitemoe_swa granitemoeshared groupvit gte "
    "helium hgnet_v2 higgs_audio_v2 hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4 "
    "hyperclovax hyperclovax_vision_v2 ibert idefics2 idefics3 idefics3_vision ijepa imagegpt "
    "inkling2_text inkling_text internlm3 internvl internvl_vision iquestcoder jais2 jetmoe "
    "jina_embeddings_v3 kolibri1 kosmos-2.5 laguna layoutlm led lfm2 lfm2_vl lighton_ocr llama "
    "llama4 llama4_text llava llava_next llava_next_video llava_onevision longformer longt5 "
    "m2m_100 mamba marian markuplm mbart megatron-bert mellum metaclip_2 minicpm3 minimax "
    "minimax_m2 minimax_m3_vl minimax_m3_vl_text ministral ministral3 mistral mistral3 "
    "mistral_large4 mistral_large4_text mixtral mlcd mlcd_vision_model mllama mobilebert "
    "mobilenet_v1 mobilenet_v2 mobilevit modernbert modernbert-decoder modernvbert molmo2_text "
    "moshi moss_transcribe_diarize mpnet mpt mra mt5 muse_glimmer_text muse_spark_text mvp "
    "nanochat nemotron nemotron_h nllb-moe nomic_bert nystromformer olmo olmo2 olmo3 "
    "olmo_hybrid olmoe openai-gpt openai_privacy_filter opt ovis2 owlv2 owlvit pegasus "
    "pegasus_x persimmon phi phi3 phi4_multimodal phimoe pixio pixtral plbart poolformer "
    "qianfan_ocr qianfan_ocr_vision qwen2 qwen2_audio qwen2_moe qwen3 qwen3_asr qwen3_moe "
    "qwen3_vl qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text radio regnet rembert resnet roberta "
    "roberta-prelayernorm roc_bert roformer "
)
ARCHITECTURES = NAMES.split()

TINY = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "vocab_size": 64, "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 8,
    "d_model": 16, "n_layer": 2, "n_head": 2, "n_embd": 16, "d_ff": 32, "num_layers": 2,
    "num_heads": 2, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "ffn_dim": 32,
    "d_kv": 8, "n_positions": 64, "n_layers": 2, "n_heads": 2, "dim": 16, "hidden_dim": 32,
    "embedding_size": 16, "word_embed_proj_dim": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "image_size": 32, "patch_size": 8, "num_channels": 3, "num_experts": 4,
    "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
}  # fmt: skip

PROGRAM = """
import warnings, inspect
import transformers
transformers.utils.logging.set_verbosity_error()
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING
def tiny_config(kind):
    cls = CONFIG_MAPPING[kind]
    default = cls()
    known = {k: v for k, v in TINY.items() if hasattr(default, k) and not isinstance(getattr(default, k), dict)}
    for part in ("text_config", "vision_config", "audio_config"):
        inner = getattr(default, part, None)
        if inner is not None and hasattr(inner, "to_dict"):
            known[part] = {k: v for k, v in TINY.items() if hasattr(inner, k)}
    return cls(**known)
def batch_for(model, config):
    names = inspect.signature(model.forward).parameters
    main = model.main_input_name
    text = getattr(config, "text_config", None) or config
    ids = torch.randint(3, 30, (2, 8))
    batch = {}
    if main == "pixel_values" or (main == "input_ids" and "input_ids" not in names):
        vision = getattr(config, "vision_config", None) or config
        size = getattr(vision, "image_size", 32) or 32
        size = size if isinstance(size, int) else size[0]
        batch["pixel_values"] = torch.randn(2, getattr(vision, "num_channels", 3) or 3, size, size)
    elif main in ("input_features", "input_values"):
        bins = getattr(config, "num_mel_bins", 0)
        batch[main] = torch.randn(2, 800) if main == "input_values" else torch.randn(2, bins, 32)
    elif main == "input_ids":
        batch["input_ids"] = ids
        if "attention_mask" in names: batch["attention_mask"] = torch.ones_like(ids)
        if "pixel_values" in names and hasattr(config, "vision_config") and hasattr(config, "projection_dim"):
            batch["pixel_values"] = torch.randn(2, 3, config.vision_config.image_size, config.vision_config.image_size)
    else:
        raise ValueError("its main input is " + main)
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in names: batch["decoder_input_ids"] = ids
    return batch
def tensors(value, depth=0):
    if isinstance(value, torch.Tensor): return [value]
    if hasattr(value, "values") and depth < 4: return [t for v in value.values() for t in tensors(v, depth + 1)]
    if isinstance(value, (list, tuple)) and depth < 4: return [t for v in value for t in tensors(v, depth + 1)]
    return []
config = tiny_config(KIND)
torch.manual_seed(3)
Model = MODEL_MAPPING[type(config)]
Model = Model[0] if isinstance(Model, tuple) else Model
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    model = Model(config)
    size = sum(p.numel() for p in model.parameters())
    if size > 30e6: raise ValueError(f"{size / 1e6:.0f} million parameters in spite of the tiny configuration")
    model.train()
    batch = batch_for(model, config)
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    outputs = [t for t in tensors(model(**batch)) if t.is_floating_point()]
    loss = sum(t.float().square().mean() for t in outputs if t.requires_grad)
    loss.backward()
    show([sorted((n, _bits(p.grad)) for n, p in model.named_parameters() if p.grad is not None)])
    opt.step()
    show(outputs, loss, torch.get_rng_state(), [p.double().sum() for p in model.parameters()], [b for b in model.buffers()])
    model.eval()
    with torch.no_grad(): show(tensors(model(**batch)))
show(torch.get_rng_state())
print(len(seen), [(w.category.__name__, w.filename, w.lineno, str(w.message)[:200]) for w in seen])
"""

done: list[str] = []


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.parametrize("kind", ARCHITECTURES if ALL else ARCHITECTURES[5::24])
def test_an_architecture(kind):
    preload("transformers")
    watched = same(f"KIND, TINY = {kind!r}, {TINY!r}\n{PROGRAM}", may_fail=True)
    if watched.code != 0:
        pytest.skip(f"{kind} refuses this configuration: {watched.stderr.splitlines()[-1][:200]}")
    assert watched.operations.count("step") == 1
    assert watched.operations.count("backward") == 1
    assert not [gap for gap in watched.gaps if gap == "failed"]
    done.append(kind)


@pytest.mark.skipif(not ALL, reason="TETHER_ALL=1 takes all")
def test_a_hundred_were_done():
    assert len(done) >= 100
