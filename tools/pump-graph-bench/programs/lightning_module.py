# SPDX-License-Identifier: Apache-2.0
"""A model of timm in a LightningModule."""

import lightning.pytorch as pl
import timm
import torch
from torch.utils.data import DataLoader, TensorDataset

from .data import pictures


class Classifier(pl.LightningModule):
    def __init__(self, name, classes, **sizes):
        super().__init__()
        self.network = timm.create_model(name, pretrained=False, num_classes=classes, drop_path_rate=0.1, **sizes)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.network(images), labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=4e-4, weight_decay=0.05)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Turns(pl.Callback):
    def __init__(self, run):
        self.run = run

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.run.turn(outputs["loss"].item())


def main(run, name="convnext_tiny", size=224, classes=1000, batch=64, **sizes):
    images, labels = pictures(torch.Generator().manual_seed(1), 4 * batch, size, classes)
    on_gpu = run.device == "cuda"
    trainer = pl.Trainer(
        accelerator="gpu" if on_gpu else "cpu", devices=1, max_steps=run.turns, max_epochs=-1,
        precision="bf16-mixed", gradient_clip_val=1.0, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[Turns(run), *run.callbacks("lightning")])
    trainer.fit(Classifier(name, classes, **sizes),
                DataLoader(TensorDataset(images, labels), batch_size=batch, pin_memory=on_gpu))
