# SPDX-License-Identifier: Apache-2.0
"""Soft actor-critic: the actor acts eagerly in environments on the host, then everything learns in one step."""

import torch
from torch import nn
from torch.nn import functional


def perceptron(inputs, width, depth, outputs):
    layers = [nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


class Actor(nn.Module):
    def __init__(self, observations, actions, width, depth):
        super().__init__()
        self.network = perceptron(observations, width, depth, 2 * actions)

    def forward(self, observation):
        """An action, and the logarithm of its chance."""
        mean, spread = self.network(observation).chunk(2, -1)
        spread = 3.5 * spread.tanh() - 1.5
        noise = torch.randn_like(mean)
        action = torch.tanh(mean + spread.exp() * noise)
        chance = -0.5 * noise**2 - spread - 0.9189 - torch.log(1 - action**2 + 1e-6)
        return action, chance.sum(-1)


class Critics(nn.Module):
    def __init__(self, observations, actions, width, depth):
        super().__init__()
        self.networks = nn.ModuleList(perceptron(observations + actions, width, depth, 1) for _ in range(2))

    def forward(self, observation, action):
        inputs = torch.cat([observation, action], -1)
        return torch.cat([network(inputs) for network in self.networks], -1)


class Environments:
    """Points that are to be steered to the origin."""

    def __init__(self, count, observations, actions):
        generator = torch.Generator().manual_seed(2)
        self.state = torch.randn(count, observations, generator=generator)
        self.steering = torch.randn(actions, observations, generator=generator) / observations**0.5

    def step(self, action):
        self.state = (0.98 * self.state + 0.2 * action @ self.steering).clamp(-5, 5)
        return self.state.clone(), -self.state.square().mean(-1)


class Memory:
    def __init__(self, size, observations, actions):
        self.parts = [torch.zeros(size, width) for width in (observations, actions, 1, observations)]
        self.generator = torch.Generator().manual_seed(3)
        self.size, self.count = size, 0

    def add(self, *transitions):
        places = torch.arange(self.count, self.count + len(transitions[0])) % self.size
        for part, new in zip(self.parts, transitions):
            part[places] = new
        self.count += len(places)

    def sample(self, batch):
        rows = torch.randint(0, min(self.count, self.size), (batch,), generator=self.generator)
        return [part[rows] for part in self.parts]


def main(run, width=4096, depth=3, observations=64, actions=16, environments=32, batch=1024):
    actor = Actor(observations, actions, width, depth).to(run.device)
    critics = Critics(observations, actions, width, depth).to(run.device)
    targets = Critics(observations, actions, width, depth).to(run.device).requires_grad_(False)
    targets.load_state_dict(critics.state_dict())
    log_alpha = torch.zeros((), device=run.device, requires_grad=True)
    of_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
    of_critics = torch.optim.Adam(critics.parameters(), lr=3e-4)
    of_alpha = torch.optim.Adam([log_alpha], lr=3e-4)

    @run.graphed
    def learn(observation, action, reward, following):
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            next_action, chance = actor(following)
            value = targets(following, next_action).amin(-1) - alpha * chance
            wanted = reward + 0.99 * value[:, None]
        critic_loss = functional.mse_loss(critics(observation, action), wanted.expand(-1, 2))
        of_critics.zero_grad()
        critic_loss.backward()
        of_critics.step()

        action, chance = actor(observation)
        actor_loss = (alpha * chance - critics(observation, action).amin(-1)).mean()
        of_actor.zero_grad()
        actor_loss.backward()
        of_actor.step()

        alpha_loss = -(log_alpha.exp() * (chance.detach() - actions)).mean()
        of_alpha.zero_grad()
        alpha_loss.backward()
        of_alpha.step()
        with torch.no_grad():
            for target, source in zip(targets.parameters(), critics.parameters()):
                target.lerp_(source, 0.005)
        return critic_loss, actor_loss

    world, memory = Environments(environments, observations, actions), Memory(4096, observations, actions)

    def act(choose):
        before = world.state.clone()
        action = choose(before)
        after, reward = world.step(action)
        memory.add(before, action, reward[:, None], after)

    for _ in range(8):  # at first by chance
        act(lambda state: 2 * torch.rand(len(state), actions) - 1)
    for _ in range(run.turns):
        with torch.no_grad():
            act(lambda state: actor(state.to(run.device))[0].cpu())
        critic_loss, actor_loss = learn(*(part.to(run.device) for part in memory.sample(batch)))
        run.turn(critic_loss.item(), actor_loss.item())
