"""GGUF, configuration, tokenizer, prompts, questions, the embedded model."""
