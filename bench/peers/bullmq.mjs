// Benchmarks BullMQ against a Redis server and prints one JSON object.
//
//   node bullmq.mjs --port 6379 [--jobs 100000] [--repeat 1] [...]
//
// WARNING: the Redis on that port is flushed several times. `./run` starts a
// private one for this.

import { fork } from 'node:child_process';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const require = createRequire(import.meta.url);

const USAGE = `usage: node bullmq.mjs --port PORT [options]

  --port PORT          Redis port on 127.0.0.1 (its data is flushed)
  --jobs N             jobs per throughput figure        (default 100000)
  --repeat K           best of K per figure              (default 1)
  --callers N          concurrent queue.add callers      (default 50)
  --pipelining         single adds with ioredis auto-pipelining (slower here)
  --chunks A,B         addBulk sizes to try              (default 500,1000)
  --bulk-callers A,B   addBulk calls in flight to try    (default 1,2,4)
  --concurrency N      worker concurrency, per worker    (default 200)
  --workers N          Worker instances per process      (default 1)
  --processes N        worker processes, 0 = in-process  (default 0)
  --pickups N          samples of the pickup figure      (default 500)
  --sweep              try worker layouts, print a line for each, and stop
`;

const QUEUE = 'bench';
const PAYLOAD_BYTES = 226;
const STALL_MS = 15_000;

const now = () => Number(process.hrtime.bigint()) / 1e6; // monotonic, shared by processes
const log = (text) => process.stderr.write(`bullmq: ${text}\n`);
const round = (x, digits = 0) => Math.round(x * 10 ** digits) / 10 ** digits;
const mib = (bytes) => round(bytes / 2 ** 20, 1);

// A job argument whose JSON text is exactly PAYLOAD_BYTES long and carries its
// sequence number, so that lost and repeated jobs can be told.
function payload(i) {
  const body = { i, to: 'someone@example.com', template: 'welcome', locale: 'en', pad: '' };
  body.pad = 'x'.repeat(PAYLOAD_BYTES - JSON.stringify(body).length);
  return body;
}

// ---------------------------------------------------------------- workers

// Runs Worker instances in this process. `onDone()` is called after each job
// that Redis has recorded as completed.
async function startWorkers({ port, workers, concurrency }, processor, onDone) {
  const list = [];
  for (let w = 0; w < workers; w++) {
    const worker = new Worker(QUEUE, processor, {
      connection: { host: '127.0.0.1', port, maxRetriesPerRequest: null },
      concurrency,
      autorun: false,
      // removeOnComplete stays unset: completed jobs are kept.
    });
    worker.on('error', (e) => log(`worker error: ${e.message}`));
    worker.on('failed', (_, e) => log(`job failed: ${e.message}`));
    if (onDone) worker.on('completed', onDone);
    await worker.waitUntilReady();
    list.push(worker);
  }
  return {
    run: () => list.forEach((w) => void w.run()),
    close: () => Promise.all(list.map((w) => w.close())),
  };
}

// State of one measured run: executions per sequence number, completions.
function counters(jobs) {
  return { seen: new Uint8Array(jobs), done: 0, last: 0 };
}

async function measuredWorkers(layout, jobs, finished) {
  const c = counters(jobs);
  const set = await startWorkers(
    layout,
    async (job) => {
      const { i } = job.data;
      if (c.seen[i] < 255) c.seen[i]++;
    },
    () => {
      c.done++;
      if (c.done >= finished.at) {
        c.last = now();
        finished.call();
      } else if (c.done % 64 === 0) c.last = now();
    },
  );
  return { c, ...set };
}

// Child process: same thing, progress goes to the parent.
async function childMain() {
  const layout = JSON.parse(process.env.BENCH_LAYOUT);
  const c = counters(layout.jobs);
  const set = await startWorkers(
    layout,
    async (job) => {
      const { i } = job.data;
      if (c.seen[i] < 255) c.seen[i]++;
    },
    () => {
      c.done++;
      c.last = now();
    },
  );
  const timer = setInterval(() => process.send({ done: c.done, last: c.last }), 10);
  process.on('message', async (m) => {
    if (m === 'go') set.run();
    if (m === 'stop') {
      clearInterval(timer);
      const rss = process.memoryUsage.rss();
      process.send({ done: c.done, last: c.last, rss, seen: Buffer.from(c.seen).toString('base64') });
      await set.close();
      process.disconnect();
    }
  });
  process.send({ ready: true });
}

async function stageProcess(redis, port, jobs, layout) {
  const full = { port, jobs, ...layout };
  let elapsed;
  let seen;
  let nodeRss;
  if (layout.processes === 0) {
    let wake;
    const all = new Promise((r) => (wake = r));
    const run = await measuredWorkers(full, jobs, { at: jobs, call: wake });
    const start = now();
    run.run();
    let before = -1;
    const watch = setInterval(() => {
      if (run.c.done === before) wake();
      before = run.c.done;
    }, STALL_MS);
    await all;
    clearInterval(watch);
    elapsed = run.c.last - start;
    nodeRss = process.memoryUsage.rss();
    seen = run.c.seen;
    await sleep(50); // a job run twice would show up here
    await run.close();
  } else {
    const kids = Array.from({ length: layout.processes }, () => ({
      proc: fork(fileURLToPath(import.meta.url), ['--child'], {
        env: { ...process.env, BENCH_LAYOUT: JSON.stringify(full) },
      }),
      done: 0,
      last: 0,
    }));
    await Promise.all(kids.map((k) => new Promise((r) => k.proc.once('message', r))));
    let wake;
    const all = new Promise((r) => (wake = r));
    let moved = now();
    for (const k of kids) {
      k.proc.on('message', (m) => {
        if (m.done > k.done) moved = now();
        Object.assign(k, m);
        if (kids.reduce((s, x) => s + x.done, 0) >= jobs || now() - moved > STALL_MS) wake();
      });
    }
    const start = now();
    kids.forEach((k) => k.proc.send('go'));
    await all;
    elapsed = Math.max(...kids.map((k) => k.last)) - start;
    await sleep(50);
    const exits = kids.map((k) => new Promise((r) => k.proc.once('exit', r)));
    kids.forEach((k) => k.proc.send('stop'));
    await Promise.all(exits);
    seen = new Uint8Array(jobs);
    for (const k of kids) Buffer.from(k.seen, 'base64').forEach((n, i) => (seen[i] += n));
    nodeRss = process.memoryUsage.rss() + kids.reduce((s, k) => s + k.rss, 0);
  }
  const redisRss = await redisField(redis, 'memory', 'used_memory_rss');
  const kept = await redis.zcard(`bull:${QUEUE}:completed`);
  const unseen = seen.reduce((s, n) => s + (n === 0), 0);
  return {
    rate: kept / (elapsed / 1000),
    lost: Math.max(unseen, jobs - kept),
    duplicated: seen.reduce((s, n) => s + Math.max(0, n - 1), 0),
    nodeRss,
    redisRss: Number(redisRss),
  };
}

// --------------------------------------------------------------- producers

function producer(port, pipelining) {
  return new Queue(QUEUE, {
    connection: { host: '127.0.0.1', port, enableAutoPipelining: pipelining },
  });
}

async function stageSingle(port, jobs, callers, pipelining) {
  const queue = producer(port, pipelining);
  await queue.waitUntilReady();
  let next = 0;
  const caller = async () => {
    while (next < jobs) await queue.add('noop', payload(next++));
  };
  const start = now();
  await Promise.all(Array.from({ length: callers }, caller));
  const rate = jobs / ((now() - start) / 1000);
  await queue.close();
  return rate;
}

async function stageBulk(port, jobs, chunk, callers) {
  const queue = producer(port, false); // addBulk sends one pipeline by itself
  await queue.waitUntilReady();
  let next = 0;
  const caller = async () => {
    while (next < jobs) {
      const from = next;
      next = Math.min(jobs, from + chunk);
      await queue.addBulk(
        Array.from({ length: next - from }, (_, k) => ({ name: 'noop', data: payload(from + k) })),
      );
    }
  };
  const start = now();
  await Promise.all(Array.from({ length: callers }, caller));
  const rate = jobs / ((now() - start) / 1000);
  await queue.close();
  return rate;
}

async function stagePickup(port, samples, layout) {
  const queue = producer(port, false);
  await queue.waitUntilReady();
  const added = new Float64Array(samples);
  const waited = [];
  const set = await startWorkers({ port, workers: 1, concurrency: layout.concurrency }, async (job) => {
    const at = now();
    if (job.data.i < samples) waited.push(at - added[job.data.i]);
  });
  set.run();
  // Warm-up: scripts loaded, code compiled, the worker waiting on Redis.
  for (let k = 0; k < 50; k++) {
    await queue.add('noop', payload(samples + k));
    await sleep(10);
  }
  await sleep(500);
  for (let i = 0; i < samples; i++) {
    const data = payload(i);
    added[i] = now();
    void queue.add('noop', data);
    await sleep(10);
  }
  for (let t = 0; t < 200 && waited.length < samples; t++) await sleep(10);
  await set.close();
  await queue.close();
  waited.sort((a, b) => a - b);
  const at = (q) => round(waited[Math.min(waited.length - 1, Math.ceil(q * waited.length) - 1)], 3);
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), missing: samples - waited.length };
}

// -------------------------------------------------------------------- main

async function redisField(redis, section, field) {
  const info = await redis.info(section);
  return new RegExp(`^${field}:(.*)$`, 'm').exec(info)?.[1].trim();
}

async function durability(redis) {
  const get = async (k) => {
    const reply = await redis.config('GET', k);
    return Array.isArray(reply) ? reply[1] : reply[k];
  };
  const [aof, save] = [await get('appendonly'), await get('save')];
  if (aof === 'no' && save === '') return 'none: Redis in memory only (appendonly no, save "")';
  return `Redis appendonly ${aof} (fsync ${await get('appendfsync')}), save "${save}"`;
}

async function sweep(redis, port, jobs, o) {
  const layouts = [];
  for (const [processes, workers] of [[0, 1], [0, 2], [1, 1], [2, 1]]) {
    for (const concurrency of [50, 100, 200, 500, 1000]) layouts.push({ processes, workers, concurrency });
  }
  for (const pipelining of [false, true]) {
    await redis.flushall('SYNC');
    log(`single add, auto-pipelining ${pipelining}: ${round(await stageSingle(port, jobs, o.callers, pipelining))}/s`);
  }
  for (const chunk of [100, 250, 500, 1000]) {
    for (const callers of [1, 2, 4]) {
      await redis.flushall('SYNC');
      log(`addBulk of ${chunk}, ${callers} in flight: ${round(await stageBulk(port, jobs, chunk, callers))}/s`);
    }
  }
  for (const layout of layouts) {
    await redis.flushall('SYNC');
    await stageBulk(port, jobs, 1000, 2);
    const r = await stageProcess(redis, port, jobs, layout);
    log(`process ${JSON.stringify(layout)}: ${round(r.rate)}/s`);
  }
}

async function main() {
  const { values: a } = parseArgs({
    options: {
      port: { type: 'string' },
      jobs: { type: 'string', default: '100000' },
      repeat: { type: 'string', default: '1' },
      callers: { type: 'string', default: '50' },
      pipelining: { type: 'boolean', default: false },
      chunks: { type: 'string', default: '500,1000' },
      'bulk-callers': { type: 'string', default: '1,2,4' },
      concurrency: { type: 'string', default: '200' },
      workers: { type: 'string', default: '1' },
      processes: { type: 'string', default: '0' },
      pickups: { type: 'string', default: '500' },
      sweep: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (a.help || !a.port) {
    (a.help ? process.stdout : process.stderr).write(USAGE);
    process.exitCode = a.help ? 0 : 2;
    return;
  }
  const num = (key, min = 1) => {
    const n = Number(a[key]);
    if (!Number.isInteger(n) || n < min) throw new Error(`--${key} must be a whole number of at least ${min}`);
    return n;
  };
  const list = (key) => a[key].split(',').map((s) => {
    const n = Number(s);
    if (!Number.isInteger(n) || n < 1) throw new Error(`--${key} must be whole numbers separated by commas`);
    return n;
  });
  const port = num('port');
  const jobs = num('jobs');
  const repeat = num('repeat');
  const callers = num('callers');
  const pickups = num('pickups');
  const chunks = list('chunks');
  const bulkCallers = list('bulk-callers');
  const { pipelining } = a;
  const layout = { processes: num('processes', 0), workers: num('workers'), concurrency: num('concurrency') };

  const redis = new Redis({ host: '127.0.0.1', port });
  if (a.sweep) {
    await sweep(redis, port, jobs, { callers });
    await redis.quit();
    return;
  }

  // Warm-up: scripts loaded into Redis, code compiled.
  const warm = Math.min(jobs, 5000);
  await redis.flushall('SYNC');
  await stageSingle(port, warm, callers, pipelining);
  await stageProcess(redis, port, warm, layout);

  const single = [];
  const bulk = [];
  const processed = [];
  const pickup = [];
  for (let k = 1; k <= repeat; k++) {
    const tag = repeat > 1 ? ` (${k}/${repeat})` : '';
    await redis.flushall('SYNC');
    single.push(await stageSingle(port, jobs, callers, pipelining));
    log(`single enqueue${tag}: ${round(single.at(-1))}/s`);
    const r = await stageProcess(redis, port, jobs, layout);
    processed.push(r);
    log(`process${tag}: ${round(r.rate)}/s, lost ${r.lost}, duplicated ${r.duplicated}`);
    for (const chunk of chunks) {
      for (const inFlight of bulkCallers) {
        await redis.flushall('SYNC');
        const rate = await stageBulk(port, jobs, chunk, inFlight);
        bulk.push({ rate, chunk, inFlight });
        log(`bulk enqueue${tag}, ${chunk} per call, ${inFlight} in flight: ${round(rate)}/s`);
      }
    }
    await redis.flushall('SYNC');
    pickup.push(await stagePickup(port, pickups, layout));
    log(`pickup${tag}: ${JSON.stringify(pickup.at(-1))} ms`);
  }
  const bestBulk = bulk.reduce((x, y) => (y.rate > x.rate ? y : x));
  const oneCaller = bulk.filter((b) => b.inFlight === 1).map((b) => b.rate);
  const leanest = processed.reduce((x, y) => (y.nodeRss + y.redisRss < x.nodeRss + x.redisRss ? y : x));
  const least = (key) => Math.min(...pickup.map((p) => p[key]));

  const result = {
    name: 'bullmq',
    version: require('bullmq/package.json').version,
    redis_version: await redisField(redis, 'server', 'redis_version'),
    jobs,
    enqueue_single_per_s: round(Math.max(...single)),
    enqueue_bulk_per_s: round(bestBulk.rate),
    ...(oneCaller.length ? { enqueue_bulk_one_caller_per_s: round(Math.max(...oneCaller)) } : {}),
    process_per_s: round(Math.max(...processed.map((p) => p.rate))),
    pickup_ms: { p50: least('p50'), p95: least('p95'), p99: least('p99') },
    lost: Math.max(...processed.map((p) => p.lost)) + Math.max(...pickup.map((p) => p.missing)),
    duplicated: Math.max(...processed.map((p) => p.duplicated)),
    rss_mb: mib(leanest.nodeRss + leanest.redisRss),
    node_rss_mb: mib(leanest.nodeRss),
    redis_rss_mb: mib(leanest.redisRss),
    settings: {
      durability: await durability(redis),
      payload_bytes: PAYLOAD_BYTES,
      completed_jobs: 'kept (removeOnComplete unset)',
      enqueue_callers: callers,
      enqueue_auto_pipelining: pipelining,
      bulk_chunk: bestBulk.chunk,
      bulk_calls_in_flight: bestBulk.inFlight,
      worker_concurrency: layout.concurrency,
      workers_per_process: layout.workers,
      worker_processes: layout.processes === 0 ? 'same as producer' : layout.processes,
      pickup_samples: pickups,
      repeat,
      ioredis: require('ioredis/package.json').version,
      node: process.versions.node,
      cpus: availableParallelism(),
    },
  };
  await redis.quit();
  process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
}

(process.argv[2] === '--child' ? childMain() : main()).catch((e) => {
  log(e.stack ?? String(e));
  process.exit(1);
});
