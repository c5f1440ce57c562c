# SPDX-License-Identifier: Apache-2.0
"""Draws training programs: a seed gives a small model, its optimizer, and the habits of the loop around it.

The same seed gives the same program. Nothing here needs PyTorch; program_runs.py runs what is drawn.
"""

from __future__ import annotations

import random
from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

MIB = 1 << 20
BUDGET = 72 * MIB  # of a process, in which programs run one after another
WORKSPACE = 32 * MIB  # of cuBLAS
NEEDED = 144 * MIB  # of a program, its workspace included: about twice the budget

# Host work inside the step, of which a replay repeats nothing. To be refused, where it is not right.
FROZEN: Dict[str, int] = {
    "counts_in_python": 3,
    "counts_in_a_closure": 2,
    "counts_on_the_host": 2,
    "counting_optimizer": 3,
    "number_from_the_loop": 2,
    "draws_in_python": 2,
    "draws_in_numpy": 2,
    "draws_on_the_host": 2,
    "own_host_generator": 2,
    "own_device_generator": 3,
    "seeds_in_the_step": 3,
    "puts_random_state_back": 1,
    "hook_appends": 3,
    "hook_counts": 2,
    "gradient_hook_appends": 2,
    "backward_hook_appends": 2,
    "keeps_gradients": 3,
    "keeps_outputs": 2,
    "setting_changes": 1,
    "number_under_a_scheduler": 1,
    "thread_reads_weights": 1,
}

# Inside the step, on the device, where a replay can do the same.
INSIDE: Dict[str, int] = {
    "position_in_a_cache": 6,
    "counts_on_the_device": 4,
    "hook_keeps_the_last": 4,
    "leaves_an_attribute": 3,
    "noise_in_the_step": 3,
    "running_average": 3,
    "averages_weights_inside": 3,
    "decays_weights_inside": 2,
    "alternating_argument": 2,
    "checkpointing": 2,
}

# Around the step.
BETWEEN: Dict[str, int] = {
    "seeds_between": 3,
    "reads_a_weight": 5,
    "reads_all_weights": 2,
    "evaluates_eagerly": 4,
    "evaluates_graphed": 4,
    "trains_in_turns": 4,
    "loads_a_checkpoint": 4,
    "plain_graph": 6,
    "plain_graph_multiplies": 3,
    "allocates_between": 4,
    "empties_the_cache": 3,
    "collects_garbage": 2,
    "fails_to_allocate": 3,
    "loader_thread": 4,
    "side_stream": 2,
    "device_batches": 2,
    "thread_reads_weights_mapped": 2,
    "replans": 5,
    "validates": 4,
    "measures": 1,
    "observes": 1,
    "reports": 2,
    "two_shapes": 4,
    "scheduler": 4,
    "writes_the_rate": 2,
    "changes_weights": 3,
    "averages_weights_between": 3,
    "switches_modes": 3,
    "freezes": 2,
    "clones_gradients": 3,
    "clones_outputs": 3,
    "gradients_from_outside": 2,
    "copies_the_model": 1,
    "raises": 3,
    "pauses": 2,
    "resets": 2,
}

HABITS = (*FROZEN, *INSIDE, *BETWEEN)

# Of these only the first that is drawn is kept: two of them would fight over the same thing.
RIVALS: Tuple[Tuple[str, ...], ...] = (
    ("loader_thread", "side_stream", "device_batches", "two_shapes"),
    ("keeps_gradients", "clones_gradients", "gradients_from_outside"),
    ("scheduler", "writes_the_rate", "number_under_a_scheduler", "counting_optimizer"),
    ("alternating_argument", "raises"),
    ("checkpointing", "hook_keeps_the_last"),
    ("plain_graph", "plain_graph_multiplies"),
)

MODELS = ("mlp", "transformer", "convolutions", "recurrent", "words")
OPTIMIZERS = ("sgd", "momentum", "momentum fused", "adam foreach", "adam fused", "adamw foreach", "adamw fused",
              "adamw single")
ZEROS = ("end none", "end zero", "start none", "start zero")
_STATE = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "counting": 2}  # tensors of a parameter's size


class Program(NamedTuple):
    seed: int
    model: str
    width: int
    rows: int
    layers: int
    precision: str  # "fp32" or "bf16"
    dropout: float
    norm: bool
    residual: bool
    optimizer: str
    tensor_rate: bool
    zero: str
    clip: bool
    accumulate: int
    calls: int
    warmup: int
    habits: Tuple[str, ...]

    def describe(self) -> str:
        parts = [f"{self.model} {self.layers} x {self.width}", f"{self.rows} rows", self.precision, self.optimizer,
                 f"zero_grad at {self.zero}", f"{self.calls} calls, {self.warmup} to warm up"]
        parts += [f"dropout {self.dropout}"] if self.dropout else []
        parts += [f"{self.accumulate} parts"] if self.accumulate > 1 else []
        parts += ["clipped"] if self.clip else []
        return f"{', '.join(parts)}; {', '.join(self.habits) or 'no habits'}"


def draw(seed: int, without: Iterable[str] = ()) -> Program:
    """The program of a seed. `without`: habits that are left out of it, and nothing else changes."""
    rng = random.Random(f"program {seed}")
    model = rng.choice(MODELS)
    optimizer = rng.choice(OPTIMIZERS)
    tensor_rate = not optimizer.startswith(("sgd", "momentum")) or optimizer.endswith("fused")
    fields: Dict[str, Any] = {
        "model": model,
        "width": 512 if model == "transformer" else 1024,
        "rows": rng.choice({"convolutions": (64, 128), "transformer": (512, 1024)}.get(model, (1024, 2048))),
        "precision": rng.choice(("fp32", "bf16")),
        "dropout": rng.choice((0.0, 0.0, 0.1)),
        "norm": rng.random() < 0.5,
        "residual": rng.random() < 0.5,
        "optimizer": optimizer,
        "tensor_rate": tensor_rate and rng.random() < 0.8,
        "zero": rng.choice(ZEROS),
        "clip": rng.random() < 0.3,
        "accumulate": rng.choice((1, 1, 1, 2)),
        "calls": rng.randint(10, 14),
        "warmup": rng.randint(1, 3),
    }
    habits = [habit for habit in _habits(rng) if habit not in set(without)]
    _fit(fields, habits)
    program = Program(seed=seed, layers=0, habits=tuple(habits), **fields)
    return program._replace(layers=_layers(program))


def _habits(rng: random.Random) -> List[str]:
    drawn = [_weighted(rng, FROZEN)] if rng.random() < 0.3 else []
    drawn += [_weighted(rng, INSIDE) for _ in range(rng.choice((0, 1, 1, 2)))]
    drawn += [_weighted(rng, BETWEEN) for _ in range(rng.choice((1, 2, 2, 3)))]
    kept: List[str] = []
    for habit in drawn:
        fights = any(habit in rivals and other in rivals for rivals in RIVALS for other in kept)
        if habit not in kept and not fights:
            kept.append(habit)
    return kept


def _weighted(rng: random.Random, table: Dict[str, int]) -> str:
    return rng.choices(list(table), list(table.values()))[0]


def _fit(fields: Dict[str, Any], habits: List[str]) -> None:
    """What habits need of the rest of the program."""
    if "counting_optimizer" in habits:
        fields.update(optimizer="counting", tensor_rate=False)
    if "number_under_a_scheduler" in habits:
        fields.update(tensor_rate=False)
    if {"scheduler", "writes_the_rate"} & set(habits):
        if not fields["tensor_rate"]:
            fields.update(optimizer="adamw fused", tensor_rate=True)
    if {"keeps_gradients", "clones_gradients"} & set(habits):
        fields.update(zero="start none")
    if "gradients_from_outside" in habits:
        fields.update(zero="end none")
    if "checkpointing" in habits:  # which cannot save random-number states in a capture
        fields.update(dropout=0.0)
    if {"two_shapes", "switches_modes", "alternating_argument", "freezes", "gradients_from_outside"} & set(habits):
        fields.update(warmup=1, calls=fields["calls"] + 4)  # each kind of call warms up by itself


def _layers(program: Program) -> int:
    """As many as make the program need NEEDED, roughly."""
    layers = range(2, 17)
    return min(layers, key=lambda count: abs(needed_bytes(program._replace(layers=count)) - NEEDED))


def needed_bytes(program: Program) -> int:
    """Roughly: weights, gradients, state, what the backward pass needs, and the workspace."""
    square = program.width * program.width * 4
    activation = program.rows * program.width * (4 if program.precision == "fp32" else 3)
    activation = activation // program.accumulate
    per_layer, fixed = {
        "mlp": ((square, (2 + program.norm + (program.dropout > 0)) * activation), (0, activation)),
        "transformer": ((12 * square, 14 * activation), (0, activation)),
        "convolutions": ((64 * 64 * 9 * 4, 3 * program.rows * 64 * 256 * 4 // program.accumulate), (8 * MIB, 0)),
        "recurrent": ((0, 3 * activation), (3 * square, activation)),
        "words": ((square, 2 * activation),
                  (4096 * program.width * 4, 2 * program.rows * 4096 * 4 // program.accumulate)),
    }[program.model]
    weights = per_layer[0] * program.layers + fixed[0]
    kept = per_layer[1] * program.layers + fixed[1]
    return weights * (2 + _STATE[program.optimizer.split()[0]]) + kept + WORKSPACE
