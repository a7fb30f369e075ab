"""What the configurations of all algorithms share: sampling, critics, descent, multipliers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from cupola.checks import check, check_not_negative, check_positive, check_types
from cupola.core import multipliers
from cupola.core.advantages import Scaling, TimeLimit
from cupola.core.multipliers import MultiplierRule

MAX_LAYERS = 100
"""Of a network: each takes time to compile."""
SIZES = ("batch_size", "num_envs", "critic_memory", "pid_delay")
"""What memory bounds (`cupola.memory`). All other whole numbers count what compiled loops do."""


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How the samples of an iteration are taken."""

    GROUP = "sampling"
    """Heading of these fields in the help of `cupola train`; the classes below have theirs."""

    batch_size: int = 5000
    """Environment steps per iteration."""
    num_envs: int = 20
    """Environments that take these steps together; must divide batch_size."""


@dataclass(frozen=True, kw_only=True)
class AdvantageConfig:
    """Discounts, and what advantages and values are estimated from."""

    GROUP = "advantage"

    gamma: float = 0.99
    """Discount of the reward and of the costs."""
    lam: float = 0.95
    """Lambda of generalised advantage estimation, for the reward."""
    lam_c: float = 0.95
    """Lambda of generalised advantage estimation, for the costs."""
    lam_critic: float = 0.0
    """Lambda of what the critics learn, reward and costs; 0: those of the advantages."""
    time_limit: TimeLimit = "bootstrap"
    """Whether the value goes on beyond an episode that the time limit cut."""
    cost_termination: Literal["terminal", "time_limit", "goes_on"] = "terminal"
    """What a termination is for costs with a discounted limit: their end too; a time limit, after
    which the critic says what comes; or they go on as they were."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Policy and critics, and what they see."""

    GROUP = "network"

    hidden: tuple[int, ...] = (64, 64)
    """Units of the hidden layers of the policy and of each critic."""
    log_std: float = -0.5
    """Initial log standard deviation of the actions, where they are continuous."""
    std_unit: Literal["action", "bound"] = "action"
    """Unit of standard deviations: the actions' own, or the bound beyond which they have no
    further effect, where there is one."""
    min_std: float = 0.0
    """The standard deviation of the actions never falls below this."""
    last_layer_scale: float = 0.1
    """Factor on the initial weights of every network's last layer."""
    normalise_obs: bool = True
    """Subtract the running mean of the observations and divide by their standard deviation."""
    obs_clip: float = 5.0
    """Bound on normalised observations."""
    action_density: Literal["gaussian", "clipped"] = "gaussian"
    """Density of actions beyond the point where an actuator saturates: the Gaussian's, or the
    probability of all that lies beyond."""


@dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """Learning rates, and how the critics learn."""

    GROUP = "learning"

    learning_rate: float = 3e-4
    """Step size of Adam, at the start."""
    lr_decay: Literal["all", "policy", "none"] = "all"
    """Which networks' learning rate falls linearly to zero over the training."""
    value_l2: float = 1e-3
    """Weight of the sum of squared parameters in the critics' loss."""
    critic_lr: float = 0.0
    """Learning rate of the critics; 0: learning_rate."""
    critic_epochs: int = 0
    """Passes of the critics, each over as many samples as a batch has; 0: the algorithm's own."""
    critic_minibatch: int = 256
    """Samples per step of the critics, at most a batch (critic_epochs above 0)."""
    critic_memory: int = 0
    """Earlier batches of which a quarter is kept for the costs' critics to go on learning from
    (critic_epochs above 0); the reward's critic learns from the newest batch."""


# The last base comes first among the fields.
@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(LearningConfig, NetworkConfig, AdvantageConfig, SamplingConfig):
    """What all algorithms have."""

    def __post_init__(self) -> None:
        check_types(self)
        for name, value in vars(self).items():
            counts = isinstance(value, int) and name not in SIZES
            check(not counts or value < 2**31, f"{name} must be smaller than 2^31, not {value}.")
        check(self.batch_size >= 1, "batch_size must be at least 1.")
        check(self.num_envs >= 1, "num_envs must be at least 1.")
        check(
            self.batch_size % self.num_envs == 0,
            f"num_envs must divide batch_size: {self.num_envs} environments cannot share"
            f" {self.batch_size} steps evenly, write for example"
            f" num_envs={math.gcd(self.num_envs, self.batch_size)}.",
        )
        check(0 <= self.gamma < 1, f"gamma must lie in [0, 1), not {self.gamma}.")
        for name in ("lam", "lam_c", "lam_critic"):
            value = getattr(self, name)
            check(0 <= value <= 1, f"{name} must lie in [0, 1], not {value}.")
        check(
            0 < len(self.hidden) <= MAX_LAYERS and min(self.hidden) >= 1,
            f"hidden needs 1 to {MAX_LAYERS} layers of at least one unit, for example"
            " hidden=(64, 64).",
        )
        check(
            self.min_std <= math.exp(self.log_std),
            f"min_std must be at most exp(log_std), {math.exp(self.log_std):.3g}, the initial"
            f" standard deviation, not {self.min_std}.",
        )
        check_positive(self, "learning_rate", "obs_clip", "last_layer_scale")
        check_not_negative(self, "min_std", "value_l2", "critic_lr", "critic_epochs")
        check_not_negative(self, "critic_memory")
        check_positive(self, "critic_minibatch")
        check(
            self.critic_memory == 0 or self.critic_epochs > 0,
            "critic_memory needs critic_epochs above 0: the passes that draw from it.",
        )


@dataclass(frozen=True, kw_only=True)
class MinibatchConfig(OnPolicyConfig):
    """Descent in epochs of minibatches, the critics' beside the policy's."""

    GROUP = "update"

    minibatch_size: int = 64
    """Samples per step of the policy."""
    epochs: int = 10
    """Epochs of a policy step, at most; the critics take as many as the first one took."""
    delta: float = math.inf
    """KL divergence that ends a policy step early; inf never does."""
    check_every: int = 0
    """Minibatches between two looks at the KL, and a step beyond 1.2 delta is shortened; 0: it is
    looked at once per epoch and nothing is shortened."""
    overshoot: float = 1.0
    """A step ends at a look that finds the KL beyond this many times delta, and is then shortened
    (check_every above 0). With 1 it ends after a few minibatches, which are mostly noise."""
    max_grad_norm: float = 40.0
    """Bound on the norm of the policy's gradient."""
    bounds_loss: float = 0.0
    """Weight of a loss on means so far beyond an actuator's end that no action says any more what
    the others would do; 0: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            1 <= self.minibatch_size <= self.batch_size,
            f"minibatch_size must lie between 1 and batch_size ({self.batch_size}),"
            f" not {self.minibatch_size}.",
        )
        check(self.epochs >= 1, f"epochs must be at least 1, not {self.epochs}.")
        check_positive(self, "delta", "max_grad_norm")
        check_not_negative(self, "check_every", "bounds_loss")
        check(
            1 <= self.overshoot < math.inf,
            f"overshoot must be a number of at least 1, not {self.overshoot}.",
        )


@dataclass(frozen=True, kw_only=True)
class CostConfig(OnPolicyConfig):
    """Costs that enter the policy's loss."""

    GROUP = "update"

    cost_advantage: Scaling = "standardise"
    """Scaling of the cost advantages."""


@dataclass(frozen=True, kw_only=True)
class LagrangianConfig(CostConfig):
    """Lagrange multipliers nu, one per cost, chosen by a rule (docs/algorithms/multipliers.md)."""

    GROUP = "multiplier"

    cost_window: int = 0
    """Number of last episodes in the mean cost return; 0: those that ended in the batch."""
    cost_estimate: Literal["episodes", "steps"] = "episodes"
    """What the multipliers see of a cost: the mean over these episodes, or over all steps of the
    batch, which are of the newest policy."""
    multiplier: Literal["integral", "pid"] = "integral"
    """Rule of the multipliers: they add up the violations, or follow a PID controller of them."""
    violation: Literal["absolute", "relative"] = "absolute"
    """What the rule sees: J^ - b, or (J^ - b) / max(J^, b), the same for costs of any size."""
    aim: float = 1.0
    """The rule steers to this share of the limit."""
    nu_init: float = 0.0
    """Multipliers at the start."""
    nu_max: float = 2.0
    """Bound on the multipliers."""
    multiplier_optimiser: Literal["sgd", "adam"] = "sgd"
    """How violations are added up (multiplier=integral)."""
    multiplier_lr: float = 0.01
    """Step size of the multipliers (multiplier=integral)."""
    pid_kp: float = 0.1
    """Gain on the smoothed violation (multiplier=pid)."""
    pid_ki: float = 0.01
    """Gain on the sum of violations (multiplier=pid)."""
    pid_kd: float = 0.01
    """Gain on the rise of the smoothed cost (multiplier=pid)."""
    pid_smoothing: float = 0.95
    """Weight of the past in both averages (multiplier=pid)."""
    pid_delay: int = 1
    """Iterations over which the rise is taken (multiplier=pid)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "multiplier_lr", "pid_delay", "aim")
        check_not_negative(self, "nu_max", "cost_window", "pid_kp", "pid_ki", "pid_kd")
        check(
            0 <= self.pid_smoothing < 1,
            f"pid_smoothing must lie in [0, 1), not {self.pid_smoothing}.",
        )
        check(
            0 <= self.nu_init <= self.nu_max and self.nu_init < math.inf,
            f"nu_init must lie between 0 and nu_max ({self.nu_max}), not {self.nu_init}.",
        )

    def multiplier_rule(self) -> MultiplierRule:
        if self.multiplier == "pid":
            gains = (self.pid_kp, self.pid_ki, self.pid_kd)
            return multipliers.pid(*gains, self.pid_smoothing, self.pid_delay, self.nu_max)
        import optax

        optimiser = optax.adam if self.multiplier_optimiser == "adam" else optax.sgd
        return multipliers.integral(optimiser(self.multiplier_lr), self.nu_max)


@dataclass(frozen=True, kw_only=True)
class TrustRegionConfig(OnPolicyConfig):
    """One natural-gradient step on the whole batch; the critics take full-batch steps."""

    GROUP = "update"

    delta: float = 0.01
    """Bound on the mean KL divergence of a step."""
    cg_iterations: int = 10
    """Iterations of conjugate gradients."""
    damping: float = 0.01
    """Added to the diagonal of the Fisher matrix."""
    backtrack: float = 0.8
    """Factor by which the line search shortens a step that is refused."""
    backtracks: int = 10
    """Lengths that the line search tries."""
    value_iterations: int = 80
    """Full-batch steps of the critics."""
    value_l2: float = 3e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "delta", "cg_iterations", "backtracks", "value_iterations")
        check_not_negative(self, "damping")
        check(self.delta < math.inf, "delta must be finite.")
        check(0 < self.backtrack < 1, f"backtrack must lie between 0 and 1, not {self.backtrack}.")


def learning_rate(
    config: OnPolicyConfig, progress: jax.Array, net: Literal["policy", "critics"]
) -> jax.Array:
    """The learning rate after ``progress`` in [0, 1) of the training."""
    base = (config.critic_lr if net == "critics" else 0.0) or config.learning_rate
    if config.lr_decay in ("all", net):
        return base * (1 - jnp.asarray(progress))
    return base * jnp.ones_like(progress)
