# SPDX-License-Identifier: Apache-2.0
"""transformers.Trainer with a classifier of texts. Attention is written out: transformers chooses another kernel while
a stream is captured, and there is no plain Trainer with captures to compare with."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from .data import texts


class Texts(torch.utils.data.Dataset):
    """Whether a text begins with a small number."""

    def __init__(self, count, length, words):
        self.texts = texts(torch.Generator().manual_seed(1), count, length, words)
        self.words = words

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return {"input_ids": self.texts[index], "labels": int(self.texts[index][0] < self.words // 2)}


class Turns(TrainerCallback):
    """Ends a turn with the loss that the Trainer logs."""

    def __init__(self, run):
        self.run = run

    def on_log(self, args, state, control, logs=None, **_others):
        if "loss" in logs:
            self.run.turn(logs["loss"])


def main(run, layers=12, width=768, heads=12, words=30522, batch=16, length=256):
    config = BertConfig(vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
                        intermediate_size=4 * width, max_position_embeddings=length, num_labels=2,
                        attn_implementation="eager")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=batch, max_steps=run.turns, learning_rate=5e-5,
            warmup_steps=4, bf16=run.device == "cuda", use_cpu=run.device == "cpu", logging_steps=1,
            save_strategy="no", report_to="none", disable_tqdm=True)
        trainer = Trainer(
            BertForSequenceClassification(config), arguments, train_dataset=Texts(8 * batch, length, words),
            callbacks=[Turns(run), *run.callbacks("transformers")])
        trainer.train()
