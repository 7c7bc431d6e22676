// How well BullMQ's limiter and Bottleneck keep a limit of 1,000 starts per second, as one JSON object.
//
//   node limits.mjs --port 6379 [--seconds 8]
//
// More is wanted than the limit allows, by two workers or limiters that share it through Redis. A referee notes every
// start and counts the most that any *sliding* second saw.
//
// WARNING: the Redis on that port is flushed. `./run --gates` starts a private one for this.

import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import Bottleneck from 'bottleneck';
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const { values } = parseArgs({ options: { port: { type: 'string' }, seconds: { type: 'string', default: '8' } } });
const port = Number(values.port);
const seconds = Number(values.seconds);
if (!port || !(seconds > 0)) {
  process.stderr.write('usage: node limits.mjs --port PORT [--seconds 8]\n');
  process.exit(2);
}
const LIMIT = 1000;
const now = () => Number(process.hrtime.bigint()) / 1e6;
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };

// Most starts in any second, and starts per second over whole seconds.
function judge(starts) {
  starts.sort((a, b) => a - b);
  let first = 0;
  let worst = 0;
  starts.forEach((at, n) => {
    while (at - starts[first] >= 1000) first++;
    worst = Math.max(worst, n + 1 - first);
  });
  const whole = Math.floor((starts.at(-1) - starts[0]) / 1000);
  const counted = starts.filter((at) => at - starts[0] < whole * 1000).length;
  return { per_s: whole > 0 ? Math.round(counted / whole) : 0, worst_second: worst };
}

async function flush() {
  const redis = new Redis(connection);
  await redis.flushall();
  await redis.quit();
}

async function bullmq() {
  await flush();
  const queue = new Queue('limits', { connection });
  const wanted = Math.ceil(LIMIT * seconds * 2);
  for (let n = 0; n < wanted; n += 1000) {
    await queue.addBulk(Array.from({ length: 1000 }, (_, i) => ({ name: 'call', data: { n: n + i } })));
  }
  const starts = [];
  const workers = [1, 2].map(
    () =>
      new Worker('limits', async () => void starts.push(now()), {
        connection,
        concurrency: 50,
        limiter: { max: LIMIT, duration: 1000 },
      }),
  );
  await sleep(seconds * 1000);
  const result = judge(starts);
  await Promise.all(workers.map((w) => w.close(true)));
  await queue.close();
  return result;
}

async function bottleneck() {
  await flush();
  const starts = [];
  const limiters = [1, 2].map(
    () =>
      new Bottleneck({
        id: 'limits',
        datastore: 'ioredis',
        Redis,
        clientOptions: connection,
        clearDatastore: false,
        reservoir: LIMIT,
        reservoirRefreshAmount: LIMIT,
        reservoirRefreshInterval: 1000,
        maxConcurrent: 100,
      }),
  );
  await Promise.all(limiters.map((l) => l.ready()));
  for (const limiter of limiters) {
    for (let n = 0; n < LIMIT * seconds; n++) {
      limiter.schedule(async () => void starts.push(now())).catch(() => {});
    }
  }
  await sleep(seconds * 1000);
  const result = judge(starts);
  await Promise.all(limiters.map((l) => l.disconnect(false)));
  return result;
}

const out = { limit_per_s: LIMIT, seconds, bullmq: await bullmq(), bottleneck: await bottleneck() };
process.stdout.write(`${JSON.stringify(out)}\n`);
process.exit(0);
