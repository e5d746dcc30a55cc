// records.js ROUNDS: records to JSON and back, grouped in maps, sorted by closures.
"use strict";
const rounds = Number(process.argv[2]);
let state = 12345;
const next = (limit) => {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return state % limit;
};
let total = 0;
for (let round = 0; round < rounds; round++) {
  const records = Array.from({ length: 8000 }, (_, id) => ({
    id, name: `name ${next(5000)}`, tags: [next(10), next(10)], price: next(10000) / 100,
  }));
  const back = JSON.parse(JSON.stringify(records));
  const groups = new Map();
  for (const one of back) {
    const group = groups.get(one.name) ?? [];
    group.push(one);
    groups.set(one.name, group);
  }
  const sorted = [...groups.values()].sort((a, b) => b.length - a.length || a[0].id - b[0].id);
  total += sorted.slice(0, 10).reduce((sum, group) => sum + group.length, 0);
}
console.log(`${rounds} rounds, ${total}`);
