"""bits.py SYSTEMS: random systems of equations of words of twelve bits, solved one by one."""

import random
import sys

import z3

count = int(sys.argv[1])
rng, solved = random.Random(16), 0
for _ in range(count):
    words = z3.BitVecs("a b c d", 12)
    secret = [rng.randrange(1 << 12) for _ in words]
    solver = z3.Solver()
    solver.set("random_seed", 0)
    for _equation in range(5):
        i, j, k = rng.sample(range(4), 3)
        shift = rng.randrange(1, 6)
        value = (secret[i] * secret[j] + (secret[k] ^ (secret[i] >> shift))) % (1 << 12)
        solver.add(words[i] * words[j] + (words[k] ^ z3.LShR(words[i], shift)) == value)
    solved += solver.check() == z3.sat
print(f"{count} systems, {solved} solved")
