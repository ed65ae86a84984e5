"""Tokenizers: training the built-in model's (byte-level BPE in which every digit is a token of its own), loading any model's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from expertmiss.errors import UserError
from expertmiss.files import write_json, write_text

END_OF_TEXT = "<|endoftext|>"  # id 0; stands at the start of every document
_BATCH = 256


def train(texts: Iterable[str], out_dir: Path | str, vocab: int = 4096) -> None:
    """Train on ``texts`` and write ``tokenizer.json`` and ``tokenizer_config.json`` so that ``AutoTokenizer`` loads ``out_dir``.

    Args:
        vocab: number of tokens, with the 256 bytes and the end-of-text token.
    """
    tokenizer = Tokenizer(models.BPE())
    # Digits before bytes: no merge crosses a digit, so that arithmetic sees place values.
    splits = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    write_text(Path(out_dir) / "tokenizer.json", tokenizer.to_str(pretty=False))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END_OF_TEXT, "bos_token": END_OF_TEXT, "unk_token": None,
        "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    write_json(Path(out_dir) / "tokenizer_config.json", config)


def load(path: Path | str, revision: str | None = None) -> Any:
    """The tokenizer of a model's folder or hub name, by transformers.

    Raises:
        UserError: there is none, or the hub cannot be reached.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(path), revision=revision)
    except (OSError, ValueError) as problem:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        raise UserError(f"{path}: no tokenizer can be loaded ({reason}); place tokenizer.json and tokenizer_config.json there") from None


def start_token(tokenizer: Any) -> int:
    """Id of the token before a document's first: the model's begin-of-text token, else its end-of-text token."""
    token = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if token is None:
        raise UserError(f"{tokenizer.name_or_path}: the tokenizer names neither a bos nor an eos token; set one in tokenizer_config.json")
    return int(token)


def encoded(tokenizer: Any, texts: Sequence[str]) -> Iterator[list[int]]:
    """Token ids of each text, without special tokens, in batches."""
    for first in range(0, len(texts), _BATCH):
        yield from tokenizer(list(texts[first : first + _BATCH]), add_special_tokens=False, verbose=False)["input_ids"]
