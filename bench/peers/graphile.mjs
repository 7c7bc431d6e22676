// Benchmarks graphile-worker against a Postgres database and prints one JSON object.
//
//   node graphile.mjs --url postgres://user@127.0.0.1:5432/database [--jobs 100000] [...]
//
// Needs Node 22.18 or newer (`./run` finds one). WARNING: the schema graphile_worker
// of that database is dropped several times. `./run --postgres` starts a private
// server for this.

import { fork } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

process.env.NO_LOG_SUCCESS = '1'; // read when graphile-worker is loaded
const { Logger, makeWorkerUtils, runTaskList } = await import('graphile-worker');
const { default: pg } = await import('pg');

// Not by import: graphile-worker does not export its package.json.
const versionOf = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;

const BEST = '1x24x1000@0,1x24x5000@10,1x100x5000@0,2x24x1000@10';

const USAGE = `usage: node graphile.mjs --url URL [options]

  --url URL            Postgres database (its schema graphile_worker is dropped)
  --jobs N             jobs per throughput figure              (default 100000)
  --slow-jobs N        jobs of the figures that are slow here: single adds and
                       processing in default mode               (default 10000)
  --repeat K           best of K per figure                    (default 1)
  --callers N          concurrent addJob callers               (default 50)
  --pools A,B          pool sizes to try for single adds        (default 10,25)
  --chunks A,B         addJobs sizes to try                    (default 500,1000)
  --bulk-callers A,B   addJobs calls in flight to try          (default 2,4)
  --default-concurrency A,B  concurrentJobs to try with default settings (default 10,24)
  --best A,B           layouts of the best mode to try, each as
                       PROCESSESxCONCURRENCYxQUEUE@DELAY
                       (default ${BEST})
  --pickups N          samples of the pickup figure            (default 500)
  --sweep              try many layouts, print a line for each, and stop
`;

const TASK = 'noop';
const PAYLOAD_BYTES = 226;
const STALL_MS = 20_000;

const now = () => Number(process.hrtime.bigint()) / 1e6; // monotonic, shared by processes
const log = (text) => process.stderr.write(`graphile-worker: ${text}\n`);
const round = (x, digits = 0) => Math.round(x * 10 ** digits) / 10 ** digits;
const mib = (bytes) => round(bytes / 2 ** 20, 1);

// A job argument whose JSON text is exactly PAYLOAD_BYTES long and carries its
// sequence number, so that lost and repeated jobs can be told.
function payload(i) {
  const body = { i, to: 'someone@example.com', template: 'welcome', locale: 'en', pad: '' };
  body.pad = 'x'.repeat(PAYLOAD_BYTES - JSON.stringify(body).length);
  return body;
}

const logger = new Logger(() => (level, message) => {
  if (level === 'error') log(message);
});

// Handlers for lost connections, which graphile-worker asks of a pool it is given.
function attended(pool) {
  pool.on('error', (e) => log(`idle client: ${e.message}`));
  pool.on('connect', (client) => client.on('error', (e) => log(`client: ${e.message}`)));
  return pool;
}

// The database's own count of completed jobs: graphile-worker deletes them, so the
// rows that its deletes report are what has been recorded.
function countingPool(url, max, onCompleted) {
  class Counting extends pg.Client {
    query(config, ...rest) {
      const result = super.query(config, ...rest);
      if (config?.name?.startsWith('complete_job')) result.then((r) => onCompleted(r.rowCount), () => {});
      return result;
    }
  }
  return attended(new pg.Pool({ connectionString: url, max, Client: Counting }));
}

// ---------------------------------------------------------------- workers

// `queue` 0 is the default mode: every job is fetched and completed by itself.
function preset({ url, concurrency, queue, delay }) {
  return {
    worker: {
      connectionString: url,
      concurrentJobs: concurrency,
      maxPoolSize: concurrency + 2, // what its documentation recommends
      logger,
      ...(queue > 0 ? { localQueue: { size: queue }, completeJobBatchDelay: delay, failJobBatchDelay: delay } : {}),
    },
  };
}

function startPool(layout, task, onCompleted) {
  const pgPool = countingPool(layout.url, layout.concurrency + 2, onCompleted);
  const workers = runTaskList({ preset: preset(layout), noHandleSignals: true }, { [TASK]: task }, pgPool);
  return {
    async close() {
      await workers.gracefulShutdown();
      await pgPool.end();
    },
  };
}

// Executions per sequence number, completions and the time of the last one.
function counters(jobs) {
  return { seen: new Uint8Array(jobs), done: 0, last: 0 };
}

// A worker pool that counts into `c`; `onProgress()` is called after each recorded completion.
function startCounting(layout, c, onProgress) {
  return startPool(
    layout,
    (body) => {
      if (c.seen[body.i] < 255) c.seen[body.i]++;
    },
    (n) => {
      c.done += n;
      c.last = now();
      onProgress?.();
    },
  );
}

// Child process: counts, and sends its progress to the parent.
async function childMain() {
  const layout = JSON.parse(process.env.BENCH_LAYOUT);
  const c = counters(layout.jobs);
  let pool;
  const timer = setInterval(() => process.send({ done: c.done, last: c.last }), 10);
  process.on('disconnect', () => process.exit(1)); // the parent is gone
  process.on('message', async (m) => {
    if (m === 'go') pool = startCounting(layout, c);
    if (m === 'stop') {
      clearInterval(timer);
      const rss = process.memoryUsage.rss();
      await pool.close();
      process.send({ done: c.done, last: c.last, rss, seen: Buffer.from(c.seen).toString('base64') }, () =>
        process.exit(0),
      );
    }
  });
  process.send({ ready: true });
}

async function processHere(layout, jobs) {
  const c = counters(jobs);
  let wake;
  const all = new Promise((r) => (wake = r));
  const start = now();
  const pool = startCounting(layout, c, () => c.done >= jobs && wake());
  let before = -1;
  const watch = setInterval(() => {
    if (c.done === before) wake();
    before = c.done;
  }, STALL_MS);
  await all;
  clearInterval(watch);
  const rss = process.memoryUsage.rss();
  await sleep(50); // a job run twice would show up here
  await pool.close();
  return { elapsed: c.last - start, done: c.done, seen: c.seen, rss };
}

async function processApart(layout, jobs) {
  const kids = Array.from({ length: layout.processes }, () => ({
    proc: fork(fileURLToPath(import.meta.url), ['--child'], {
      env: { ...process.env, BENCH_LAYOUT: JSON.stringify({ ...layout, jobs }) },
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
  await sleep(50);
  const exits = kids.map((k) => new Promise((r) => k.proc.once('exit', r)));
  kids.forEach((k) => k.proc.send('stop'));
  await Promise.all(exits);
  const seen = new Uint8Array(jobs);
  for (const k of kids) Buffer.from(k.seen, 'base64').forEach((n, i) => (seen[i] += n));
  return {
    elapsed: Math.max(...kids.map((k) => k.last)) - start,
    done: kids.reduce((s, k) => s + k.done, 0),
    seen,
    rss: process.memoryUsage.rss() + kids.reduce((s, k) => s + k.rss, 0),
  };
}

async function stageProcess(admin, jobs, layout) {
  const r = layout.processes > 1 ? await processApart(layout, jobs) : await processHere(layout, jobs);
  const left = Number((await admin.query('select count(*) from graphile_worker._private_jobs')).rows[0].count);
  const unseen = r.seen.reduce((s, n) => s + (n === 0), 0);
  return {
    rate: r.done / (r.elapsed / 1000),
    lost: Math.max(unseen, left, jobs - r.done),
    duplicated: r.seen.reduce((s, n) => s + Math.max(0, n - 1), 0),
    rss: r.rss,
    layout,
  };
}

// --------------------------------------------------------------- producers

const nameOf = ({ processes, concurrency, queue, delay }) =>
  queue > 0 ? `${processes}x${concurrency}x${queue}@${delay}` : `concurrency ${concurrency}`;

function readLayout(text) {
  const m = /^(\d+)x(\d+)x(\d+)@(\d+)$/.exec(text);
  if (!m) throw new Error(`--best: ${text} is not PROCESSESxCONCURRENCYxQUEUE@DELAY`);
  const [processes, concurrency, queue, delay] = m.slice(1).map(Number);
  return { processes, concurrency, queue, delay };
}

// An empty schema of the installed version.
async function reset(admin, url) {
  await admin.query('drop schema if exists graphile_worker cascade');
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  await utils.migrate();
  await utils.release();
  await admin.query('checkpoint'); // the stages before leave nothing to this one
}

async function stageSingle(url, jobs, callers, poolSize) {
  const pgPool = attended(new pg.Pool({ connectionString: url, max: poolSize }));
  const utils = await makeWorkerUtils({ pgPool, logger });
  // Connections stand before the clock starts.
  await Promise.all(Array.from({ length: poolSize }, () => pgPool.query('select pg_sleep(0.05)')));
  let next = 0;
  const caller = async () => {
    while (next < jobs) await utils.addJob(TASK, payload(next++));
  };
  const start = now();
  await Promise.all(Array.from({ length: callers }, caller));
  const rate = jobs / ((now() - start) / 1000);
  await utils.release();
  await pgPool.end();
  return rate;
}

// `addJobs` of its library, or the statement that its own performance test sends,
// which does not send every new row back.
async function stageBulk(url, jobs, chunk, callers, bare) {
  const pgPool = attended(new pg.Pool({ connectionString: url, max: callers }));
  const utils = await makeWorkerUtils({ pgPool, logger });
  await Promise.all(Array.from({ length: callers }, () => pgPool.query('select pg_sleep(0.05)')));
  const add = bare
    ? (specs) =>
        pgPool.query(
          'select 1 from graphile_worker.add_jobs(array(select json_populate_recordset(null::graphile_worker.job_spec, $1::json)))',
          [JSON.stringify(specs)],
        )
    : (specs) => utils.addJobs(specs);
  let next = 0;
  const caller = async () => {
    while (next < jobs) {
      const from = next;
      next = Math.min(jobs, from + chunk);
      await add(Array.from({ length: next - from }, (_, k) => ({ identifier: TASK, payload: payload(from + k) })));
    }
  };
  const start = now();
  await Promise.all(Array.from({ length: callers }, caller));
  const rate = jobs / ((now() - start) / 1000);
  await utils.release();
  await pgPool.end();
  return rate;
}

async function stagePickup(url, samples, layout) {
  const pgPool = attended(new pg.Pool({ connectionString: url, max: 10 }));
  const utils = await makeWorkerUtils({ pgPool, logger });
  const added = new Float64Array(samples);
  const waited = [];
  const pool = startPool(
    { ...layout, url },
    (body) => {
      const at = now();
      if (body.i < samples) waited.push(at - added[body.i]);
    },
    () => {},
  );
  // Warm-up: code compiled, statements prepared, the worker listening.
  for (let k = 0; k < 100; k++) {
    await utils.addJob(TASK, payload(samples + k));
    await sleep(10);
  }
  await sleep(500);
  for (let i = 0; i < samples; i++) {
    const body = payload(i);
    added[i] = now();
    void utils.addJob(TASK, body);
    await sleep(10);
  }
  for (let t = 0; t < 300 && waited.length < samples; t++) await sleep(10);
  await pool.close();
  await utils.release();
  await pgPool.end();
  waited.sort((a, b) => a - b);
  const at = (q) => round(waited[Math.min(waited.length - 1, Math.ceil(q * waited.length) - 1)], 3);
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), missing: samples - waited.length, layout };
}

// -------------------------------------------------------------------- main

async function setting(admin, name) {
  return (await admin.query(`show ${name}`)).rows[0][name];
}

// Resident memory of the server's processes; what they share counts once per process.
async function serverMemory(admin) {
  const { rows } = await admin.query('select pid from pg_stat_activity');
  let kib = 0;
  for (const { pid } of rows) {
    try {
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      kib += Number(/^RssAnon:\s+(\d+)/m.exec(status)?.[1] ?? 0);
    } catch {
      // it has ended, or this is not Linux
    }
  }
  return kib * 1024;
}

async function sweep(admin, url, o) {
  for (const pool of [2, 5, 10, 25, 50]) {
    await reset(admin, url);
    log(`single add, ${o.callers} callers, pool of ${pool}: ${round(await stageSingle(url, o.slow, o.callers, pool))}/s`);
  }
  for (const bare of [false, true]) {
    for (const chunk of [500, 1000, 5000, 10000, 50000]) {
      for (const callers of [1, 2, 4]) {
        await reset(admin, url);
        const rate = await stageBulk(url, o.jobs, chunk, callers, bare);
        log(`${bare ? 'add_jobs by SQL' : 'addJobs'} of ${chunk}, ${callers} in flight: ${round(rate)}/s`);
      }
    }
  }
  for (const concurrency of [1, 10, 24, 50]) {
    await reset(admin, url);
    await stageBulk(url, o.slow, 10000, 2, true);
    const r = await stageProcess(admin, o.slow, { url, processes: 1, concurrency, queue: 0 });
    log(`process, default settings, concurrency ${concurrency}: ${round(r.rate)}/s`);
  }
  for (const processes of [1, 2, 4]) {
    for (const concurrency of [24, 100]) {
      for (const queue of [500, 1000, 5000]) {
        for (const delay of [0, 10, 250]) {
          const layout = { url, processes, concurrency, queue, delay };
          await reset(admin, url);
          await stageBulk(url, o.jobs, 10000, 2, true);
          const r = await stageProcess(admin, o.jobs, layout);
          log(`process ${nameOf(layout)}: ${round(r.rate)}/s, lost ${r.lost}, duplicated ${r.duplicated}`);
        }
      }
    }
  }
}

async function main() {
  const { values: a } = parseArgs({
    options: {
      url: { type: 'string' },
      jobs: { type: 'string', default: '100000' },
      'slow-jobs': { type: 'string', default: '10000' },
      repeat: { type: 'string', default: '1' },
      callers: { type: 'string', default: '50' },
      pools: { type: 'string', default: '10,25' },
      chunks: { type: 'string', default: '500,1000' },
      'bulk-callers': { type: 'string', default: '2,4' },
      'default-concurrency': { type: 'string', default: '10,24' },
      best: { type: 'string', default: BEST },
      pickups: { type: 'string', default: '500' },
      sweep: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (a.help || !a.url) {
    (a.help ? process.stdout : process.stderr).write(USAGE);
    process.exitCode = a.help ? 0 : 2;
    return;
  }
  const whole = (key, text) => {
    const n = Number(text);
    if (!Number.isInteger(n) || n < 1) throw new Error(`--${key}: ${text} is not a whole number of at least 1`);
    return n;
  };
  const num = (key) => whole(key, a[key]);
  const list = (key) => a[key].split(',').map((s) => whole(key, s));
  const { url } = a;
  const jobs = num('jobs');
  const slow = Math.min(jobs, num('slow-jobs'));
  const repeat = num('repeat');
  const callers = num('callers');
  const pickups = num('pickups');
  const pools = list('pools');
  const chunks = list('chunks');
  const bulkCallers = list('bulk-callers');
  const plain = list('default-concurrency').map((concurrency) => ({ url, processes: 1, concurrency, queue: 0 }));
  const tuned = a.best.split(',').map((s) => ({ url, ...readLayout(s) }));

  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  if (a.sweep) {
    await sweep(admin, url, { jobs, slow, callers });
    await admin.end();
    return;
  }

  // Warm-up: code compiled, the server's caches filled.
  await reset(admin, url);
  await stageSingle(url, Math.min(slow, 2000), callers, pools[0]);
  await stageProcess(admin, Math.min(slow, 2000), tuned[0]);

  const single = [];
  const bulk = [];
  const byDefault = [];
  const atBest = [];
  const pickup = [];
  let serverRss = 0;
  for (let k = 1; k <= repeat; k++) {
    const tag = repeat > 1 ? ` (${k}/${repeat})` : '';
    for (const pool of pools) {
      await reset(admin, url);
      const rate = await stageSingle(url, slow, callers, pool);
      single.push({ rate, pool });
      log(`single enqueue${tag}, pool of ${pool}: ${round(rate)}/s`);
    }
    for (const layout of plain) {
      await reset(admin, url);
      await stageBulk(url, slow, 10000, 2, true);
      const r = await stageProcess(admin, slow, layout);
      byDefault.push(r);
      log(`process by default${tag}, ${nameOf(layout)}: ${round(r.rate)}/s, lost ${r.lost}, duplicated ${r.duplicated}`);
    }
    const plans = chunks.flatMap((chunk) =>
      bulkCallers.flatMap((inFlight) => [false, true].map((bare) => ({ chunk, inFlight, bare }))),
    );
    for (const plan of plans) {
      await reset(admin, url);
      const rate = await stageBulk(url, jobs, plan.chunk, plan.inFlight, plan.bare);
      bulk.push({ rate, ...plan });
      log(`bulk enqueue${tag}, ${plan.bare ? 'add_jobs by SQL' : 'addJobs'}, ${plan.chunk} per call, ${plan.inFlight} in flight: ${round(rate)}/s`);
    }
    for (const layout of tuned) {
      await reset(admin, url);
      await stageBulk(url, jobs, 10000, 2, true);
      const r = await stageProcess(admin, jobs, layout);
      atBest.push(r);
      serverRss = Math.max(serverRss, await serverMemory(admin));
      log(`process at best${tag}, ${nameOf(layout)}: ${round(r.rate)}/s, lost ${r.lost}, duplicated ${r.duplicated}`);
    }
    for (const layout of [plain.at(-1), { ...tuned[0], processes: 1 }]) {
      await reset(admin, url);
      pickup.push(await stagePickup(url, pickups, layout));
      const { p50, p95, p99, missing } = pickup.at(-1);
      log(`pickup${tag}, ${nameOf(layout)}: p50 ${p50}, p95 ${p95}, p99 ${p99} ms, missing ${missing}`);
    }
  }
  const top = (runs) => runs.reduce((x, y) => (y.rate > x.rate ? y : x));
  const [bestSingle, bestBulk, bestDefault, best] = [single, bulk, byDefault, atBest].map(top);
  const processed = [...byDefault, ...atBest];
  const least = (key) => Math.min(...pickup.map((p) => p[key]));
  const swiftest = pickup.reduce((x, y) => (y.p99 < x.p99 ? y : x));

  const result = {
    name: 'graphile-worker',
    version: versionOf('graphile-worker'),
    postgres_version: await setting(admin, 'server_version'),
    jobs,
    enqueue_single_per_s: round(bestSingle.rate),
    enqueue_bulk_per_s: round(bestBulk.rate),
    process_default_per_s: round(bestDefault.rate),
    process_per_s: round(best.rate),
    pickup_ms: { p50: least('p50'), p95: least('p95'), p99: least('p99') },
    lost: Math.max(...processed.map((p) => p.lost)) + Math.max(...pickup.map((p) => p.missing)),
    duplicated: Math.max(...processed.map((p) => p.duplicated)),
    rss_mb: mib(best.rss + serverRss),
    node_rss_mb: mib(best.rss),
    postgres_rss_mb: mib(serverRss),
    settings: {
      durability: `fsync ${await setting(admin, 'fsync')}, synchronous_commit ${await setting(admin, 'synchronous_commit')}`,
      payload_bytes: PAYLOAD_BYTES,
      completed_jobs: 'deleted (graphile-worker knows no other way)',
      slow_jobs: slow,
      enqueue_callers: callers,
      enqueue_pool: bestSingle.pool,
      bulk_chunk: bestBulk.chunk,
      bulk_calls_in_flight: bestBulk.inFlight,
      bulk_by: bestBulk.bare ? 'SQL function add_jobs' : 'addJobs',
      default_concurrency: bestDefault.layout.concurrency,
      best_processes: best.layout.processes,
      best_concurrency: best.layout.concurrency,
      best_local_queue: best.layout.queue,
      best_batch_delay_ms: best.layout.delay,
      pickup_by: nameOf(swiftest.layout),
      pickup_samples: pickups,
      repeat,
      pg: versionOf('pg'),
      node: process.versions.node,
      cpus: availableParallelism(),
    },
  };
  await admin.end();
  process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
}

(process.argv[2] === '--child' ? childMain() : main()).catch((e) => {
  log(e.stack ?? String(e));
  process.exit(1);
});
