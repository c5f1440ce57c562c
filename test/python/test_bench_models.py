# SPDX-License-Identifier: Apache-2.0
"""The sentinels' models, tiny, on the CPU: they train, PyTorch's remedies do not change what they compute, and the
worker feeds them right. Skipped where there is no PyTorch, and models of a library where there is none of that; any
version from 1.13 on will do."""

import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import support

sys.path.insert(0, str(support.ROOT / "tools" / "pump-graph-bench"))

import remedies  # noqa: E402
import sentinels  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

TINY = {
    "resnet.preactivation": {"depth": 29, "width": 4},
    "resnet.bottleneck": {"layers": (1, 1, 2), "width": 8, "size": 32},
    "densenet.densenet": {"layers": (2, 2), "growth": 4, "size": 32},
    "vgg.vgg": {"counts": (1, 2, 2), "width": 4, "hidden": 32, "size": 32},
    "transformer.gpt": {"layers": 2, "width": 32, "heads": 2, "length": 16, "vocabulary": 128, "pieces": 2},
    "transformer.vit": {"layers": 2, "width": 32, "heads": 2, "size": 32},
    "language.lstm": {"length": 12, "words": 64, "width": 16, "pieces": 3},
    "vnet.vnet": {"shape": (16, 16, 16), "width": 4},
    "unet.unet": {"width": 32, "multiples": (1, 2), "depth": 1, "size": 8},
    "library.llama": {"layers": 2, "width": 32, "heads": 4, "shared_heads": 2, "hidden": 48, "length": 16,
                      "vocabulary": 128, "pieces": 2},
    "library.convnext": {"widths": (8, 16), "layers": (1, 2), "size": 32},
    "library.swin": {"width": 32, "layers": (2, 2), "window": 4, "size": 32},
}
# Millions of parameters as their authors and libraries count them.
KNOWN_SIZES = {"resnet152": 60.2, "densenet264": 33.3, "vgg19": 143.7, "vit-l16": 304.3, "gpt2-355m": 354.8,
               "llama-336m": 336.1, "convnext-b": 88.6, "swin-s": 49.6}
LIBRARIES = {sentinel.model: sentinel.library for sentinel in sentinels.SENTINELS if sentinel.library}


def attention(query, key, value, is_causal=False):
    """For versions without one."""
    weights = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    if is_causal:
        weights = weights.masked_fill(torch.ones(weights.shape[-2:]).triu(1).bool(), float("-inf"))
    return weights.softmax(-1) @ value


def attention_is_there():
    functional = torch.nn.functional
    if hasattr(functional, "scaled_dot_product_attention"):
        return contextlib.nullcontext()
    return mock.patch.object(functional, "scaled_dot_product_attention", attention, create=True)


@unittest.skipUnless(torch, "PyTorch is not installed")
class Models(unittest.TestCase):
    def setUp(self):
        context = attention_is_there()
        context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def build(self, model):
        self.skip_without_library(model)
        torch.manual_seed(0)
        file, function = model.split(".")
        task = getattr(importlib.import_module(f"models.{file}"), function)(**TINY[model])
        return task, task.draw(4, torch.Generator().manual_seed(0))

    def skip_without_library(self, model):
        if model in LIBRARIES and importlib.util.find_spec(LIBRARIES[model]) is None:
            self.skipTest(f"{model} needs {LIBRARIES[model]}")

    def gradients(self, task, inputs):
        torch.manual_seed(1)  # of dropout
        task.model.zero_grad(set_to_none=True)
        loss = task.model(*inputs)
        loss.backward()
        return loss.detach(), {name: parameter.grad for name, parameter in task.model.named_parameters()}

    def test_every_sentinels_model_is_tested(self):
        self.assertEqual({sentinel.model for sentinel in sentinels.SENTINELS}, set(TINY))

    def test_every_parameter_has_a_gradient(self):
        for model in TINY:
            with self.subTest(model=model):
                loss, gradients = self.gradients(*self.build(model))
                self.assertEqual(loss.shape, ())
                self.assertTrue(torch.isfinite(loss))
                self.assertEqual([name for name, gradient in gradients.items() if gradient is None], [])

    def test_they_learn_one_batch(self):
        for model in TINY:
            with self.subTest(model=model):
                task, inputs = self.build(model)
                optimizer = torch.optim.Adam(task.model.parameters(), lr=1e-3)
                losses = []
                for _ in range(12):
                    optimizer.zero_grad(set_to_none=True)
                    loss = task.model(*inputs)
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                self.assertLess(min(losses[-3:]), losses[0])

    def test_inputs_are_batch_first_and_on_the_host(self):
        for model in TINY:
            with self.subTest(model=model):
                task, inputs = self.build(model)
                self.assertEqual({tensor.shape[0] for tensor in inputs}, {4})
                self.assertTrue(torch.isfinite(task.model(*(tensor[:2] for tensor in inputs))))

    def test_checkpointing_changes_no_gradient(self):
        for model in TINY:
            with self.subTest(model=model):
                task, inputs = self.build(model)
                loss, expected = self.gradients(task, inputs)
                with remedies.applied("checkpoint", task.blocks):
                    again, found = self.gradients(task, inputs)
                self.assertEqual(loss, again)
                for name, gradient in expected.items():
                    torch.testing.assert_close(found[name], gradient, msg=name)

    def test_a_remedy_runs_each_block_and_leaves_no_trace(self):
        for remedy, module, function in (("checkpoint", "torch.utils.checkpoint", "checkpoint"),
                                         ("offload", "torch.autograd.graph", "save_on_cpu")):
            for model in TINY:
                original = getattr(importlib.import_module(module), function)
                if remedy == "offload":  # pinned memory needs a GPU
                    original = lambda pin_memory: contextlib.nullcontext()  # noqa: E731
                with self.subTest(remedy=remedy, model=model), \
                        mock.patch(f"{module}.{function}", side_effect=original) as used:
                    task, inputs = self.build(model)
                    with remedies.applied(remedy, task.blocks):
                        task.model(*inputs)
                    self.assertEqual(used.call_count, len(task.blocks))
                    used.reset_mock()
                    task.model(*inputs)
                    used.assert_not_called()

    def test_sizes_are_the_known_ones(self):
        for name, millions in KNOWN_SIZES.items():
            with self.subTest(name=name):
                self.skip_without_library(sentinels.BY_NAME[name].model)
                model = sentinels.BY_NAME[name].build().model
                count = sum(parameter.numel() for parameter in model.parameters())
                self.assertAlmostEqual(count / 1e6, millions, delta=0.15)

    def test_resnet_1001_has_1001_layers(self):
        model = sentinels.BY_NAME["resnet1001"].build().model
        inside = sum(name.startswith("blocks.") and ".conv_" in name for name, _ in model.named_modules())
        self.assertEqual(inside + 2, 1001)  # the stem and the head


@contextlib.contextmanager
def without_gpu():
    """sentinel_worker on the CPU: tensors stay where they are, and the default device is no context."""
    with contextlib.ExitStack() as undo:
        undo.enter_context(attention_is_there())
        sys.modules.pop("sentinel_worker", None)
        worker = importlib.import_module("sentinel_worker")
        for target, name, replacement in (
            (torch, "device", lambda _: contextlib.nullcontext()),
            (torch, "autocast", lambda *_, **__: contextlib.nullcontext()),
            (torch.Tensor, "cuda", lambda tensor: tensor),
            (torch.Tensor, "pin_memory", lambda tensor: tensor),
            (torch.cuda, "is_current_stream_capturing", lambda: False),
            (torch.cuda, "synchronize", lambda: None),
            (torch.cuda, "empty_cache", lambda: None),
            (torch.cuda, "reset_peak_memory_stats", lambda: None),
            (torch.cuda, "get_device_name", lambda: "none"),
            (worker.training, "make_deterministic", lambda: None),
            (worker, "_optimizer", lambda _, model: torch.optim.SGD(model.parameters(), lr=0.1)),
        ):
            undo.enter_context(mock.patch.object(target, name, replacement))
        yield worker


@unittest.skipUnless(torch, "PyTorch is not installed")
class Worker(unittest.TestCase):
    SENTINEL = sentinels.Sentinel("tiny", "tiny", "transformer.vit", TINY["transformer.vit"], 8, "fp32", "sgd", 0.1)

    def setUp(self):
        context = without_gpu()
        self.worker = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def losses(self, warmup_batch, micro_batches):
        trained = self.worker.Trained(self.SENTINEL, warmup_batch, micro_batches)
        return [trained.step().item() for _ in range(3)]

    def test_micro_batches_are_the_same_step(self):
        for whole, parts in zip(self.losses(0, 1), self.losses(0, 4)):
            self.assertAlmostEqual(whole, parts, places=4)

    def test_warming_up_takes_some_samples_and_a_capture_takes_all(self):
        for warmup_batch, expected in ((2, [2, 8, 8]), (0, [8, 8, 8])):
            trained = self.worker.Trained(self.SENTINEL, warmup_batch)
            seen = []
            trained.model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
            trained.step()
            with mock.patch.object(torch.cuda, "is_current_stream_capturing", lambda: True):
                trained.step()
            trained.warms_up = False
            trained.step()
            self.assertEqual(seen, expected)

    def figures(self, run, kind="budget"):
        """Of one row, by way of the file that it is written to."""
        row = {"key": "tiny/row/0", "kind": kind, "budget": {"name": "2", "divisor": 2.0, "size_bytes": 0}}
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(self.worker.BY_NAME, tiny=self.SENTINEL), \
                mock.patch.object(self.worker, "run_pumpgraph", run), mock.patch.object(self.worker, "run_plain", run):
            results = Path(folder) / "results.jsonl"
            job = {"sentinel": "tiny", "rows": [row], "results": str(results), "plain_peak_bytes": 1000}
            self.worker.Runner(job).run_all()
            entry = json.loads(results.read_text())
        self.assertEqual(entry["key"], "tiny/row/0")
        return entry["figures"]

    def test_a_budget_is_a_share_of_the_plain_peak(self):
        self.assertEqual(self.figures(lambda _, __, budget: {"budget": budget})["budget"], 500)

    def test_trouble_is_told_apart(self):
        status = self.worker.pumpgraph.Status
        refusal = self.worker.pumpgraph.PumpGraphError(status.UNPLANNABLE, "node 7 needs 9 GiB")
        self.assertEqual(self.figures(mock.Mock(side_effect=refusal))["refused"], "node 7 needs 9 GiB")
        failure = self.worker.pumpgraph.PumpGraphError(status.OUT_OF_HOST_MEMORY, "1 GiB is missing")
        self.assertEqual(self.figures(mock.Mock(side_effect=failure))["error"], "1 GiB is missing")
        full = torch.cuda.OutOfMemoryError("tried to allocate\nmore")
        self.assertTrue(self.figures(mock.Mock(side_effect=full), "plain")["out_of_memory"])
        with contextlib.redirect_stderr(io.StringIO()):
            broken = self.figures(mock.Mock(side_effect=RuntimeError("boom\nat")), "plain")
        self.assertEqual(broken["error"], "RuntimeError: boom")


if __name__ == "__main__":
    unittest.main()
