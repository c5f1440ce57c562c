# SPDX-License-Identifier: Apache-2.0
"""The programs of the benchmark, tiny, on the CPU: they run, with losses that are numbers. Skipped where there is no
PyTorch, and those of a library where there is none of that."""

import contextlib
import importlib
import importlib.util
import io
import math
import sys
import unittest
import warnings
from unittest import mock

import support

sys.path.insert(0, str(support.ROOT / "tools" / "pump-graph-bench"))

import program_rows  # noqa: E402
import test_bench_models  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

_TEXT = {"layers": 2, "width": 32, "heads": 4, "words": 64, "batch": 4, "length": 16}
TINY = {
    "causal_lm": {**_TEXT, "hidden": 48},
    "encoder_decoder": {**_TEXT, "hidden": 48, "source_length": 24},
    "vision": {"layers": 2, "width": 32, "heads": 2, "size": 32, "classes": 10, "batch": 4},
    "lora": {**_TEXT, "hidden": 48},
    "trainer": _TEXT,
    "lightning_module": {"name": "convnext_atto", "size": 64, "classes": 10, "batch": 4},
    "segmentation": {"size": 64, "classes": 4, "batch": 2},
    "detection": {"backbone": "resnet18", "size": 64, "classes": 4, "batch": 2, "boxes": 2},
    "gan": {"noise": 8, "width": 4, "levels": 3, "batch": 4},
    "actor_critic": {"width": 32, "depth": 2, "observations": 8, "actions": 2, "environments": 4, "batch": 16},
    "averaged_weights": {"layers": 2, "width": 32, "heads": 2, "size": 32, "classes": 10, "batch": 4},
    "mixup": {"network": "resnet18", "size": 32, "classes": 10, "batch": 4},
    "compiled_blocks": _TEXT,
    "checkpointed": _TEXT,
    "decoding": {**_TEXT, "hidden": 48, "shared_heads": 2, "prompt": 4},
    "graph_network": {"nodes": 64, "edges": 256, "features": 8, "width": 16, "layers": 2, "classes": 4},
    "mixture_of_experts": {**_TEXT, "hidden": 48, "shared_heads": 2, "experts": 4},
    "diffusion": {"width": 32, "multiples": (1, 2), "depth": 1, "size": 8, "batch": 4},
    "audio": {"layers": 2, "width": 32, "heads": 2, "frames": 64, "bins": 32, "classes": 8, "batch": 4},
    "recommender": {"tables": 3, "rows": 32, "width": 8, "numbers": 4, "hidden": 16, "batch": 32},
}
# What older versions of PyTorch do not have.
NEEDS = {"averaged_weights": "torch.optim.swa_utils.get_ema_multi_avg_fn", "mixup": "torchvision.transforms.v2",
         "compiled_blocks": "torch.compile", "lora": "torch.get_default_device", "audio": "torch.amp.GradScaler",
         "decoding": "torch.get_default_device"}
TURNS = 8


def is_there(name):
    package, *attributes = name.split(".")
    thing = importlib.import_module(package)
    for attribute in attributes:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"{thing.__name__}.{attribute}" if hasattr(thing, "__path__") else attribute)
        thing = getattr(thing, attribute, None)
    return thing is not None


class Sizes(unittest.TestCase):
    def test_every_program_has_tiny_ones(self):
        self.assertEqual(set(TINY), set(program_rows.BY_NAME))


@unittest.skipUnless(torch, "PyTorch is not installed")
class Programs(unittest.TestCase):
    def run_program(self, name, timed=2):
        for library in program_rows.BY_NAME[name].libraries:
            if importlib.util.find_spec(library) is None:
                self.skipTest(f"{name} needs {library}")
        if name in NEEDS and not is_there(NEEDS[name]):
            self.skipTest(f"{name} needs {NEEDS[name]}")
        import program_ways

        torch.manual_seed(0)
        run = program_ways.Run(TURNS, timed, device="cpu")
        # In full precision, for operators of the CPU take fewer types together.
        with warnings.catch_warnings(), test_bench_models.attention_is_there(), \
                mock.patch.object(torch, "autocast", lambda *_, **__: contextlib.nullcontext()):
            warnings.simplefilter("ignore")
            importlib.import_module(f"programs.{name}").main(run, **TINY[name])
        return run.figures()

    def test_they_run_and_their_losses_are_numbers(self):
        for name in TINY:
            with self.subTest(name=name):
                figures = self.run_program(name)
                losses = [float.fromhex(loss) for loss in figures["losses"]]
                self.assertEqual(len(losses) % TURNS, 0)
                self.assertTrue(all(map(math.isfinite, losses)), losses)
                self.assertGreater(len(set(losses)), 1, "nothing changes")
                self.assertEqual(len(figures["turn_ms"]), 2)

    def test_they_do_the_same_again(self):
        for name in ("actor_critic", "diffusion", "gan", "segmentation"):  # which draw or keep things of their own
            with self.subTest(name=name):
                self.assertEqual(self.run_program(name)["losses"], self.run_program(name)["losses"])

    def test_a_program_that_stops_early_has_no_figures(self):
        import program_ways

        run = program_ways.Run(TURNS, 2, device="cpu")
        run.turn(1.0)
        with self.assertRaisesRegex(RuntimeError, "went round 1 times, not 8"):
            run.figures()


@unittest.skipUnless(torch, "PyTorch is not installed")
class Worker(unittest.TestCase):
    def figures(self, error):
        import program_worker

        with mock.patch.object(program_worker, "run_row", side_effect=error(program_worker.pumpgraph)), \
                contextlib.redirect_stderr(io.StringIO()):
            return program_worker.attempt({}, {}, program_rows.BY_NAME["gan"])

    def test_trouble_is_told_apart(self):
        for error, expected in (
            (lambda own: own.UnsupportedError("line 7\nwaits"), {"refused": "line 7 waits"}),
            (lambda own: own.StaleStepError("a rate"), {"refused": "a rate"}),
            (lambda own: own.PumpGraphError(own.Status.UNPLANNABLE, "node 7"), {"refused": "node 7"}),
            (lambda own: own.PumpGraphError(own.Status.DRIVER_ERROR, "lost"), {"error": "lost"}),
            (lambda own: ValueError("no such\nmodel"), {"error": "ValueError: no such model"}),
        ):
            self.assertEqual(self.figures(error), expected)


@unittest.skipUnless(torch and is_there("torch.optim.optimizer.register_optimizer_step_pre_hook"), "an older PyTorch")
class CapturableOptimizers(unittest.TestCase):
    """Their settings; what a capture does with them needs a GPU."""

    def settings(self, optimizer, scheduled=False):
        import program_ways

        if scheduled:
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda turn: 1.0)
        return [set(program_ways._settings_of(optimizer, group)) for group in optimizer.param_groups]

    def test_what_a_capture_needs_is_set_and_no_more(self):
        weights = [torch.nn.Parameter(torch.zeros(2))]
        self.assertEqual(self.settings(torch.optim.AdamW(weights)), [{"capturable", "lr"}])
        self.assertEqual(self.settings(torch.optim.AdamW(weights, capturable=True)), [set()])
        self.assertEqual(self.settings(torch.optim.AdamW(weights, capturable=True), True), [{"lr"}])
        self.assertEqual(self.settings(torch.optim.SGD(weights, lr=0.1)), [set()])
        self.assertEqual(self.settings(torch.optim.SGD(weights, lr=0.1), True), [{"fused", "foreach", "lr"}])


if __name__ == "__main__":
    unittest.main()
