# SPDX-License-Identifier: Apache-2.0
"""The causal families of transformers, each with its configuration's defaults."""

import dataclasses
import json

# Classes of the two lists that serve no text on their own, by their key, and why.
ENCODER = "an encoder's weights with a causal mask"
DECODER = "the decoder of an encoder-decoder model; its defaults attend to an encoder"
SPEECH = "speech or music: its tokens are several codebooks"
CAPTION = "captions of images: it runs with an image alone"
LEFT_OUT = {
    **dict.fromkeys(("bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra",
                     "ernie", "megatron-bert", "reformer", "rembert", "roberta",
                     "roberta-prelayernorm", "roc_bert", "roformer", "xlm", "xlm-roberta",
                     "xlm-roberta-xl", "xlnet", "xmod"), ENCODER),
    **dict.fromkeys(("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart",
                     "mvp", "pegasus", "plbart", "prophetnet", "trocr", "whisper"), DECODER),
    **dict.fromkeys(("moshi", "musicgen", "musicgen_melody"), SPEECH),
    "gemma4_assistant": "a draft model: it reads another model's cache",
    "gemma4_unified_assistant": "a draft model: it reads another model's cache",
    **dict.fromkeys(("git", "blip/images", "blip-2/images", "instructblip/images",
                     "instructblipvideo/images", "kosmos-2/images", "kosmos-2.5/images",
                     "pix2struct/images", "vision-encoder-decoder/images"), CAPTION),
    **dict.fromkeys(("florence2/images", "pp_formulanet/images", "t5gemma2/images",
                     "udop/images"), "an encoder-decoder model"),
    "diffusion_gemma/images": "writes blocks by diffusion, not token by token",
    "blt": "reads bytes by patches: three transformers, of which the largest skips",
    "evolla/images": "reads proteins",
    "idefics/images": "runs with an image alone",
    "inkling_mm_model/images": "by default its tower of images has layers 614,400 wide",
    "pi0/images": "writes the motions of a robot",
}

LFM2_MOE_ATTENTION = (2, 6, 10, 14, 18, 21)
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_attention_heads": 16,
          "num_hidden_layers": 27, "intermediate_size": 4304, "image_size": 364, "patch_size": 14}
AXES = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
# Values that defaults lack and that the class needs. Numbers as the family's first
# published model has them; ours where none is known.
COMPLETED = {
    "aya_vision/images": {"vision_config": SIGLIP},
    "chameleon/images": {"vocabulary_map": {"<image>": 8711}},
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "dbrx": {"attn_config": {"rope_theta": 500000.0, "kv_n_heads": 8, "clip_qkv": 8.0},
             "ffn_config": {"hidden_size": 2048}},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "deepseek_ocr2/images": {"text_config": {"num_experts_per_tok": 6}},
    "dots1": {"n_shared_experts": 2, "n_routed_experts": 128, "num_experts_per_tok": 6,
              "first_k_dense_replace": 1},
    "emu3/images": {"vocabulary_map": {"<image>": 151851, "<|extra_200|>": 151846}},
    "granite4_vision/images": {"deepstack_layer_map": [[-19, 9], [-13, 6], [-7, 3], [-1, 0]],
                               "downsample_rate": "4/8"},
    "granitemoehybrid": {"layer_types": ["attention" if layer % 10 == 5 else "mamba"
                                         for layer in range(32)]},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl/images": {"text_config": {"head_dim": 128}},
    "lfm2_moe": {"num_hidden_layers": 24, "layer_types": [
        "full_attention" if layer in LFM2_MOE_ATTENTION else "conv" for layer in range(24)]},
    # transformers gives these experts weights, although they give back what they get.
    "longcat_flash": {"zero_expert_num": 0},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "perception_lm/images": {"vision_config": {
        "architecture": "vit_pe_core_large_patch14_336", "model_args": {"embed_dim": 1024}}},
    # By default images are as wide as another model's tokens.
    "qwen3_vl/images": {"vision_config": {"out_hidden_size": 4096}},
    "qwen3_vl_moe/images": {"vision_config": {"out_hidden_size": 2048}},
    "step3p7/images": {"text_config": {"sliding_window": 512}},
}
SECTIONS = ("vision_config", "audio_config", "text_config")
QSA = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 2048,
       "indexer_compress_ratio": 16}
COMPLETED["qwen4_exp_text"] = QSA
COMPLETED["qwen4_exp"] = COMPLETED["qwen4_exp/images"] = {"text_config": QSA}


@dataclasses.dataclass
class Family:
    model_class: type
    config: object
    has_fp8_cache: bool = False  # its file may ask for one
    describes_towers: bool = True


def lists_of_classes():
    """(key, model_type, class's name) of every class, once. The key is the model_type, with
    "/images" for a class that reads images, too."""
    from transformers.models.auto import modeling_auto as auto
    causal = auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    images = auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    for model_type, name in causal.items():
        yield model_type, model_type, name
    for model_type, name in images.items():
        if causal.get(model_type) != name:
            yield f"{model_type}/images", model_type, name


def complete_by_code(key, config):
    """What defaults lack that depends on the other defaults."""
    text = config.get_text_config(decoder=True)
    if key.startswith("cohere_compass"):
        text.rope_parameters = {kind: {"rope_type": "default", "rope_theta": 50000.0}
                                for kind in set(text.layer_types)}
    if key == "deepseek_ocr2/images" and text.mlp_layer_types is None:
        text.mlp_layer_types = ["dense"] + ["sparse"] * (text.num_hidden_layers - 1)


def make_family(key, model_type, name):
    """The family with its defaults. Raises what transformers raises."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    model_class = getattr(transformers, name)
    config = CONFIG_MAPPING[model_type](**COMPLETED.get(key, {}))
    wanted = getattr(model_class, "config_class", None)
    if wanted is not None and not isinstance(config, wanted):
        text = config.get_text_config(decoder=True)
        config = text if isinstance(text, wanted) else config
    complete_by_code(key, config)
    config.architectures = [name]
    config.dtype = torch.bfloat16
    return Family(model_class, config)


def class_of_file(settings):
    """The class that a config.json names, or the one of its model_type."""
    import transformers
    from transformers.models.auto import modeling_auto as auto
    name = (settings.get("architectures") or [""])[0]
    model_type = settings.get("model_type", "")
    names = (name, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(model_type, ""),
             auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type, ""))
    found = next((name for name in names if name and hasattr(transformers, name)), "")
    if not found:
        raise ValueError(f"transformers knows neither the architecture '{name}' nor the "
                         f"model_type '{model_type}'")
    return getattr(transformers, found)


def family_of_file(path):
    """The family that a config.json names. Raises what transformers raises, or ValueError."""
    import torch
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    settings = json.loads(path.read_text())
    quantization = settings.pop("quantization_config", None)  # of weights that are not read here
    sidecar = path.with_name(path.name.replace("config.json", "hf_quant_config.json"))
    model_class = class_of_file(settings)
    config_class = model_class.config_class
    if config_class.model_type != settings["model_type"] and (
            settings["model_type"] in CONFIG_MAPPING):
        config_class = CONFIG_MAPPING[settings["model_type"]]
    config = config_class.from_dict(settings)
    config.dtype = torch.bfloat16
    return Family(model_class, config, quantization is not None or sidecar.exists(),
                  any(section in settings for section in SECTIONS))


def build(family):
    """The model of a family, whose weights have shapes and no bytes."""
    import torch
    with torch.device("meta"):
        model = family.model_class._from_config(family.config, dtype=torch.bfloat16)
    return model.eval()
