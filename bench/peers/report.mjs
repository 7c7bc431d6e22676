// Compares benchmark results and prints a table, or JSON with --json.
//
//   node report.mjs --tidegate FILE [--peer FILE]... [--flat FILE] [--json]
//
// Of several --peer files the best value of each figure counts.

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const { values: args } = parseArgs({
  options: {
    peer: { type: 'string', multiple: true, default: [] },
    tidegate: { type: 'string' },
    flat: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
});

function load(file) {
  const text = readFileSync(file, 'utf8');
  try {
    return JSON.parse(text);
  } catch (e) {
    throw new Error(`${file}: not one JSON object (${e.message})`);
  }
}

// Best of several runs, figure by figure; lost and duplicated take the worst.
function best(runs) {
  if (runs.length === 0) return null;
  const by = (pick, key) => {
    const found = runs.map((r) => r[key]).filter((v) => typeof v === 'number');
    return found.length ? pick(...found) : undefined;
  };
  const lead = runs.reduce((x, y) => (y.process_per_s > x.process_per_s ? y : x));
  const lean = runs.reduce((x, y) => (y.rss_mb < x.rss_mb ? y : x));
  const out = { ...lead };
  for (const key of Object.keys(lead).filter((k) => k.endsWith('_per_s'))) out[key] = by(Math.max, key);
  for (const key of ['lost', 'duplicated']) out[key] = by(Math.max, key);
  for (const key of ['rss_mb', 'node_rss_mb', 'redis_rss_mb']) out[key] = lean[key];
  out.pickup_ms = Object.fromEntries(
    Object.keys(lead.pickup_ms).map((q) => [q, Math.min(...runs.map((r) => r.pickup_ms[q]))]),
  );
  out.runs = runs.length;
  return out;
}

const peer = best(args.peer.map(load));
const tide = load(args.tidegate);
const flat = args.flat ? load(args.flat) : null;

const isNumber = (x) => typeof x === 'number' && Number.isFinite(x);
const ratio = (a, b) => (isNumber(a) && isNumber(b) && b > 0 ? a / b : null);
const verdict = (value, bar) => {
  if (!isNumber(value)) return 'missing';
  const [op, limit] = bar;
  const met = op === '>=' ? value >= limit : op === '<=' ? value <= limit : value < limit;
  return met ? 'met' : 'missed';
};

const ratios = {};
const verdicts = {};
const tables = [];

const group = (x) => x.toLocaleString('en-US', { maximumFractionDigits: x < 100 ? 2 : 0 });
const show = (x, unit = '') => (isNumber(x) ? group(x) + unit : '-');
const times = (x) => (isNumber(x) ? `${x.toFixed(2)}x` : '-');
const barText = ([op, limit], unit) => `${op} ${group(limit)}${unit}`;

// One table row; `key` names it in the ratios and verdicts.
function compare(rows, key, label, base, ours, unit, bar) {
  const r = ratio(ours, base);
  ratios[key] = isNumber(r) ? Number(r.toFixed(3)) : null;
  if (bar) verdicts[key] = verdict(r, bar); // judged before rounding
  rows.push([label, show(base, unit), show(ours, unit), times(r), bar ? barText(bar, 'x') : '', bar ? verdicts[key] : '']);
}

function absolute(rows, key, label, ours, unit, bar) {
  verdicts[key] = verdict(ours, bar);
  rows.push([label, '', show(ours, unit), '', barText(bar, unit), verdicts[key]]);
}

if (peer) {
  const rows = [['figure', 'BullMQ', 'Tidegate', 'ratio', 'bar', 'verdict']];
  compare(rows, 'process', 'process, jobs/s', peer.process_per_s, tide.process_per_s, '', ['>=', 10]);
  compare(rows, 'enqueue_single', 'enqueue one by one, jobs/s', peer.enqueue_single_per_s, tide.enqueue_single_per_s, '', ['>=', 2]);
  compare(rows, 'enqueue_bulk', 'enqueue in bulk, jobs/s', peer.enqueue_bulk_per_s, tide.enqueue_bulk_per_s, '', ['>=', 8]);
  if (isNumber(peer.enqueue_bulk_one_caller_per_s)) {
    compare(rows, 'enqueue_bulk_one_caller', '  (BullMQ with one caller)', peer.enqueue_bulk_one_caller_per_s, tide.enqueue_bulk_per_s, '');
  }
  compare(rows, 'pickup_p50', 'pickup p50', peer.pickup_ms?.p50, tide.pickup_ms?.p50, ' ms');
  compare(rows, 'pickup_p99', 'pickup p99', peer.pickup_ms?.p99, tide.pickup_ms?.p99, ' ms', ['<=', 0.6]);
  compare(rows, 'rss', 'resident memory', peer.rss_mb, tide.rss_mb, ' MB');
  rows.push(['lost', show(peer.lost), show(tide.lost), '', '', '']);
  rows.push(['duplicated', show(peer.duplicated), show(tide.duplicated), '', '', '']);
  tables.push([`BullMQ ${peer.version} on Redis ${peer.redis_version} (${peer.settings?.durability ?? 'durability unknown'})`
    + `${peer.runs > 1 ? `, best of ${peer.runs} runs` : ''}, against Tidegate on SQLite`, rows]);
} else {
  tables.push(['Tidegate on SQLite', [
    ['figure', 'Tidegate'],
    ['process, jobs/s', show(tide.process_per_s)],
    ['enqueue one by one, jobs/s', show(tide.enqueue_single_per_s)],
    ['enqueue in bulk, jobs/s', show(tide.enqueue_bulk_per_s)],
    ['pickup p50', show(tide.pickup_ms?.p50, ' ms')],
    ['pickup p99', show(tide.pickup_ms?.p99, ' ms')],
    ['resident memory', show(tide.rss_mb, ' MB')],
    ['lost', show(tide.lost)],
    ['duplicated', show(tide.duplicated)],
  ]]);
}

const clean = (t) => (!isNumber(t.lost) || !isNumber(t.duplicated) ? 'missing' : t.lost === 0 && t.duplicated === 0 ? 'met' : 'missed');
verdicts.nothing_lost_or_duplicated = clean(tide);

if (flat) {
  const rows = [['figure', 'reference', 'with backlog', 'ratio', 'bar', 'verdict']];
  compare(rows, 'flat_process', 'process, jobs/s, to empty', tide.process_per_s, flat.process_per_s, '', ['>=', 0.85]);
  if (peer) compare(rows, 'flat_process_to_peer', 'process, jobs/s, to BullMQ', peer.process_per_s, flat.process_per_s, '', ['>=', 8.5]);
  compare(rows, 'flat_pickup_p99', 'pickup p99, to empty', tide.pickup_ms?.p99, flat.pickup_ms?.p99, ' ms', ['<=', 2]);
  absolute(rows, 'flat_cold_start', 'cold start', flat.cold_start_ms, ' ms', ['<', 5000]);
  compare(rows, 'flat_rss', 'resident memory', tide.rss_mb, flat.rss_mb, ' MB');
  rows.push(['lost', show(tide.lost), show(flat.lost), '', '', '']);
  rows.push(['duplicated', show(tide.duplicated), show(flat.duplicated), '', '', '']);
  verdicts.flat_nothing_lost_or_duplicated = clean(flat);
  tables.push(['Tidegate with a large backlog, against Tidegate on an empty database', rows]);
}

if (args.json) {
  const out = { ...(peer ? { peer } : {}), tidegate: tide, ...(flat ? { flat } : {}), ratios, verdicts };
  console.log(JSON.stringify(out, null, 2));
} else {
  for (const [title, rows] of tables) {
    const width = rows[0].map((_, c) => Math.max(...rows.map((r) => r[c].length)));
    const line = (cells) => `| ${cells.map((s, c) => (c === 0 ? s.padEnd(width[c]) : s.padStart(width[c]))).join(' | ')} |`;
    console.log(`${title}\n`);
    console.log(line(rows[0]));
    console.log(`|${width.map((w, c) => (c === 0 ? '-'.repeat(w + 2) : `${'-'.repeat(w + 1)}:`)).join('|')}|`);
    rows.slice(1).forEach((r) => console.log(line(r)));
    console.log('');
  }
  const bad = Object.entries(verdicts).filter(([, v]) => v !== 'met').map(([k, v]) => `${k} ${v}`);
  console.log(bad.length ? `Not met: ${bad.join(', ')}` : 'All bars met.');
}
