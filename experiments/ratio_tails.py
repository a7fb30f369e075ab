"""How far a few samples carry CUP's projection: a run continued, and the ratios of each projection.

    .venv/bin/python experiments/ratio_tails.py RUN > experiments/results/NAME.csv

RUN has checkpoints, and iterations to go. For each iteration: the 99 % quantile and the maximum of
the importance ratios pi_{k+1} / pi_k on the batch, the mean of (rho - 1) A^c that the projection
reached, and the part of it that is due to the hundredth of the samples with the most of it.
"""

import csv
import sys

import jax
import jax.numpy as jnp

import cupola
from cupola.algos import cup
from cupola.core.samples import ratio

COLUMNS = ("kl_project", "ratio_99", "ratio_max", "change", "change_of_one_percent")
found: list[list[float]] = []
projection = cup.project


def watched(half, start, samples, batch, orders, *, config, problem):
    done = projection(half, start, samples, batch, orders, config=config, problem=problem)
    rho = ratio(done.learner.policy, samples)
    changes = jnp.sort((rho - 1) * samples.adv_c[:, 0])
    few = len(changes) // 100
    numbers = (
        done.metrics["kl_project"],
        jnp.quantile(rho, 0.99),
        jnp.max(rho),
        jnp.mean(changes),
        jnp.sum(changes[:few]) / len(changes),
    )
    jax.debug.callback(lambda *row: found.append([float(x) for x in row]), *numbers)
    return done


if __name__ == "__main__":
    cup.project = watched
    cupola.resume(sys.argv[1], progress=False)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([f"{x:.4g}" for x in row] for row in found)
