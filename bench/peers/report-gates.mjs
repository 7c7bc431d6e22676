// Compares `tidegate bench gates` with its bars, and its limit with those of BullMQ and Bottleneck; --json for JSON.
//
//   node report-gates.mjs --memory FILE --redis FILE --postgres FILE [--limits FILE] [--json]

import { parseArgs } from 'node:util';
import { load, Report, show } from './tables.mjs';

const { values: args } = parseArgs({
  options: {
    memory: { type: 'string' },
    redis: { type: 'string' },
    postgres: { type: 'string' },
    limits: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
});
const [memory, redis, postgres] = [args.memory, args.redis, args.postgres].map(load);
const limits = args.limits ? load(args.limits) : null;
const report = new Report();

const rows = [['figure', 'base', 'Tidegate', 'ratio', 'bar', 'verdict']];
report.absolute(rows, 'memory', 'in process, admissions/s on a core', memory.admissions_per_s, '', ['>=', 2e6]);
report.compare(rows, 'redis_calls', 'Redis, calls/s against a script that does nothing', redis.trivial_script_per_s,
  2 * redis.admissions_per_s, '', ['>=', 0.3]);
report.absolute(rows, 'redis_round_trips', 'Redis, round trips per admission', redis.round_trips_per_admission, '', ['<=', 1]);
report.compare(rows, 'redis_domains', 'Redis, 1,000 domains, admissions/s', redis.admissions_per_s, redis.domains_1000_per_s, '', ['>=', 0.8]);
report.compare(rows, 'redis_waiters', 'Redis, 10,000 waiters, admissions/s', redis.admissions_per_s, redis.waiters_10000_per_s, '', ['>=', 0.8]);
report.absolute(rows, 'redis_p99', 'Redis, decision p99 with 50 callers', redis.decision_us.p99 / 1000, ' ms', ['<', 5]);
report.absolute(rows, 'redis_crowd_p99', 'Redis, decision p99 with 1,000 callers', redis.crowd_1000_us.p99 / 1000, ' ms', ['<', 50]);
report.absolute(rows, 'postgres', 'Postgres, admissions/s on one key', postgres.admissions_per_s, '', ['>=', 2000]);
for (const run of [memory, redis, postgres]) {
  report.absolute(rows, `${run.gates}_over`, `${run.gates}, admitted over the limit`, run.over_admitted, '', ['<=', 0]);
}
report.table('Gates', rows);

if (limits) {
  const limit = [['', 'starts/s', `worst sliding second (limit ${show(limits.limit_per_s)})`]];
  limit.push(['BullMQ limiter', show(limits.bullmq.per_s), show(limits.bullmq.worst_second)]);
  limit.push(['Bottleneck', show(limits.bottleneck.per_s), show(limits.bottleneck.worst_second)]);
  for (const run of [memory, redis, postgres]) {
    limit.push([`Tidegate, ${run.gates}`, show(run.limited.per_s), show(run.limited.worst_second)]);
  }
  report.table('1,000 starts per second, wanted more', limit);
}

if (args.json) {
  console.log(JSON.stringify({ memory, redis, postgres, limits, ratios: report.ratios, verdicts: report.verdicts }));
} else {
  report.print();
}
