#!/usr/bin/env node
// A worker for the kind "greet", with nothing but the fetch that Node (18 or newer) has built in.
//
//     tidegate serve &
//     node examples/node/worker.mjs
//     tidegate enqueue greet --data '{"name": "Ada"}' --store http://127.0.0.1:7433
//
// Environment: TIDEGATE_STORE (the server, http://127.0.0.1:7433 unless said), TIDEGATE_KEY (if the server has keys).
// With --idle SECONDS it ends when there was nothing to do for that long; SIGTERM, Ctrl-C and `tidegate workers drain`
// end it after the jobs it has.

import { hostname } from 'node:os';
import { parseArgs } from 'node:util';

const LEASE_MS = 15_000;
const QUEUE = 'greetings';
const MAX = 10;
const url = process.env.TIDEGATE_STORE ?? 'http://127.0.0.1:7433';
const { values: args } = parseArgs({ options: { idle: { type: 'string' } } });
const idleMs = args.idle ? Number(args.idle) * 1000 : Infinity;

/** The server understood the request and will not do it; trying again changes nothing. */
class Refused extends Error {}

/** Sends a request and returns the reply. Every request of a worker is safe to send again. */
async function call(method, path, body, timeoutMs = 30_000) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await once(method, path, body, timeoutMs);
    } catch (error) {
      if (error instanceof Refused || attempt === 9) throw error;
      console.error(`${url} did not answer (${error.cause?.code ?? error.message}); trying again`);
      await sleep(Math.min(100 * 2 ** attempt, 5_000));
    }
  }
}

async function once(method, path, body, timeoutMs) {
  const headers = { 'content-type': 'application/json' };
  if (process.env.TIDEGATE_KEY) headers.authorization = `Bearer ${process.env.TIDEGATE_KEY}`;
  const response = await fetch(url + path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(timeoutMs),
  });
  const text = await response.text();
  if (response.status === 429 || response.status === 503) throw new Error(`HTTP ${response.status}`);
  if (!response.ok) {
    const problem = JSON.parse(text);
    throw new Refused(`${problem.code}: ${problem.detail} (${problem.hint})`);
  }
  return text ? JSON.parse(text) : null;
}

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

/** The work itself: returns the result, or throws. */
async function greet(job) {
  if (!job.payload?.name) throw new TypeError('the payload has no name');
  console.log(`hello ${job.payload.name}`);
  return { greeting: `hello ${job.payload.name}` };
}

/** Runs a job and says what became of it. */
async function outcome(job) {
  try {
    return { ticket: job.ticket, outcome: 'complete', result: await greet(job) };
  } catch (error) {
    // A payload that is wrong stays wrong: the job goes to the dead letters. Anything else is tried again.
    const category = error instanceof TypeError ? 'INVALID_INPUT' : 'LOGIC_ERROR';
    const failure = { category, code: error.code ?? error.name, message: error.message };
    return { ticket: job.ticket, outcome: 'fail', failure };
  }
}

/** Keeps the lease alive while jobs run, at a third of its time. */
class Heart {
  lost = false;
  cancelled = new Set();

  constructor(lease) {
    this.timer = setInterval(() => this.beat(lease), LEASE_MS / 3);
  }

  async beat(lease) {
    try {
      const { beats: [beat] } = await call('POST', '/v1/heartbeats', { leases: [lease] });
      this.lost = beat.until === null;
      beat.cancel.forEach((ticket) => this.cancelled.add(ticket));
    } catch (error) {
      console.error(error.message);
    }
  }

  stop() {
    clearInterval(this.timer);
  }
}

/** Says every few seconds that this worker is alive (`tidegate workers ls`), and hears whether it should end. */
class Presence {
  static everyMs = 5_000;
  static lastsMs = 15_000;
  running = 0;
  /** It takes no more jobs. */
  draining = false;

  constructor(name) {
    this.path = `/v1/workers/${name}`;
    this.startedAt = new Date().toISOString();
    this.timer = setInterval(() => this.announce(), Presence.everyMs);
  }

  async announce() {
    const about = {
      role: 'worker', host: hostname(), pid: process.pid, started_at: this.startedAt, queues: [QUEUE], kinds: ['greet'],
      concurrency: MAX, running: this.running, draining: this.draining,
    };
    try {
      const { order } = await once('PUT', this.path, { about, ttl_ms: Presence.lastsMs }, Presence.everyMs);
      if (order?.order === 'drain') this.draining = true;
    } catch (error) {
      console.error(`${this.path} was not kept (${error.message}); jobs do not depend on it`);
    }
  }

  async end() {
    clearInterval(this.timer);
    // If this does not arrive, it is forgotten when its time is over.
    await once('DELETE', this.path, undefined, 1_000).catch(() => {});
  }
}

async function work() {
  // Registering what is registered already changes nothing.
  await call('POST', '/v1/queues', { name: QUEUE });
  await call('PUT', '/v1/kinds/greet', { queue: QUEUE, timeout_ms: 30_000 });

  const worker = `node-${hostname()}-${process.pid}`;
  const presence = new Presence(worker);
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { presence.draining = true; });
  try {
    await presence.announce();
    await claimAndRun(worker, presence);
  } finally {
    await presence.end();
  }
}

/** Until it is told to stop, or has been idle for too long. */
async function claimAndRun(worker, presence) {
  const waitMs = Math.min(idleMs, 5_000);
  let last = Date.now();
  while (!presence.draining) {
    const claim = { worker, queues: [{ name: QUEUE }], max: MAX, lease_ms: LEASE_MS, wait_ms: waitMs };
    const { lease, jobs } = await call('POST', '/v1/claims', claim, waitMs + 10_000);
    if (jobs.length === 0) {
      if (Date.now() - last >= idleMs) return;
      continue;
    }
    presence.running = jobs.length;
    const heart = new Heart(lease.id);
    const settlements = await Promise.all(jobs.map((job) => {
      if (presence.draining) return { ticket: job.ticket, outcome: 'release' };
      if (heart.cancelled.has(job.ticket)) return { ticket: job.ticket, outcome: 'cancel' };
      return outcome(job);
    }));
    // Under a lost lease the server refuses each of them; somebody else has the jobs now.
    await call('POST', '/v1/settlements', { settlements });
    heart.stop();
    presence.running = 0;
    last = Date.now();
  }
}

try {
  await work();
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
