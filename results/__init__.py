"""The reproduction of the paper: its numbers beside ours, recomputed from the committed curves.

python -m results                  every table and figure, as `make results`
python -m results add NAME RUNS    the finished cells of a sweep into experiments/results/NAME/
python -m results zoo RUNS         the best feasible seed of each task into the zoo
"""
