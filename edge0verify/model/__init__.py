"""GGUF, configuration, tokenizer, prompts, questions, the embedded model."""

from edge0verify.model.config import Config
from edge0verify.model.model import DEFAULT_MODEL, DEFAULT_Q4_PROJECTION, Model, file_sha256, load_model
from edge0verify.model.plan import Planned, layer_prefix, tensor_plan
from edge0verify.model.prompts import Question, prompt, prompt_file, prompt_names, questions
from edge0verify.model.tensor import Tensor
from edge0verify.model.tokenizer import decode, encode

__all__ = [
    "DEFAULT_MODEL",
    "DEFAULT_Q4_PROJECTION",
    "Config",
    "Model",
    "Planned",
    "Question",
    "Tensor",
    "decode",
    "encode",
    "file_sha256",
    "layer_prefix",
    "load_model",
    "prompt",
    "prompt_file",
    "prompt_names",
    "questions",
    "tensor_plan",
]
