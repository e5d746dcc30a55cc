\\ factor.gp, COUNT in the environment: numbers of two primes of 20 digits each, factored again.
default(timer, 0);
count = eval(getenv("COUNT"));
setrand(15);
total = 0;
for (k = 1, count, p = nextprime(10^19 + random(10^19)); q = nextprime(10^19 + random(10^19)); f = factorint(p * q); total += f[1, 1] % 1000);
print(count, " numbers, ", total);
quit
