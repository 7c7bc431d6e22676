// Compares benchmark results on Postgres and prints tables, or JSON with --json.
//
//   node report-postgres.mjs --tidegate FILE... [--peer FILE...] [--flat FILE... --beside FILE...]
//        [--processes FILE...] [--steady FILE --sizes FILE] [--json]
//
// Of several files of one kind the best value of each figure counts.

import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { best, load, Report, show } from './tables.mjs';

const { values: args } = parseArgs({
  options: {
    peer: { type: 'string', multiple: true, default: [] },
    tidegate: { type: 'string', multiple: true, default: [] },
    flat: { type: 'string', multiple: true, default: [] },
    beside: { type: 'string', multiple: true, default: [] },
    processes: { type: 'string', multiple: true, default: [] },
    steady: { type: 'string' },
    sizes: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
});

const peer = best(args.peer.map(load));
const tide = best(args.tidegate.map(load));
const flat = best(args.flat.map(load));
// On an empty database, in turns with those with a backlog.
const beside = best(args.beside.map(load)) ?? tide;
const processes = best(args.processes.map(load));
const steady = args.steady ? load(args.steady) : null;
// One JSON object per line, one line per minute.
const sizes = args.sizes ? readFileSync(args.sizes, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line)) : [];
const report = new Report();

const rows = [['figure', 'graphile-worker', 'Tidegate', 'ratio', 'bar', 'verdict']];
const judged = (bar) => (peer ? bar : undefined);
report.compare(rows, 'process', 'process, jobs/s, to its best mode', peer?.process_per_s, tide.process_per_s, '', judged(['>=', 2]));
report.compare(rows, 'process_default', 'process, jobs/s, to its default', peer?.process_default_per_s, tide.process_per_s, '', judged(['>=', 15]));
report.compare(rows, 'enqueue_single', 'enqueue one by one, jobs/s', peer?.enqueue_single_per_s, tide.enqueue_single_per_s, '', judged(['>=', 8]));
report.compare(rows, 'enqueue_bulk', 'enqueue in bulk, jobs/s', peer?.enqueue_bulk_per_s, tide.enqueue_bulk_per_s, '', judged(['>=', 1.5]));
report.compare(rows, 'pickup_p50', 'pickup p50', peer?.pickup_ms?.p50, tide.pickup_ms?.p50, ' ms');
report.compare(rows, 'pickup_p99', 'pickup p99', peer?.pickup_ms?.p99, tide.pickup_ms?.p99, ' ms', judged(['<=', 1]));
report.compare(rows, 'rss', 'memory of the worker', peer?.node_rss_mb, tide.rss_mb, ' MB');
rows.push(['lost', show(peer?.lost), show(tide.lost), '', '', '']);
rows.push(['duplicated', show(peer?.duplicated), show(tide.duplicated), '', '', '']);
report.table(
  peer
    ? `graphile-worker ${peer.version} against Tidegate, on the same Postgres ${peer.postgres_version} (${peer.settings.durability})`
      + `${peer.runs > 1 ? `, best of ${peer.runs} runs` : ''}`
    : 'Tidegate on Postgres',
  rows,
);
report.clean('nothing_lost_or_duplicated', tide);

if (flat) {
  const rows = [['figure', 'empty', 'with backlog', 'ratio', 'bar', 'verdict']];
  report.compare(rows, 'flat_process', 'process, jobs/s', beside.process_per_s, flat.process_per_s, '', ['>=', 0.85]);
  report.compare(rows, 'flat_pickup_p99', 'pickup p99', beside.pickup_ms?.p99, flat.pickup_ms?.p99, ' ms', ['<=', 2]);
  report.compare(rows, 'flat_cold_start', 'cold start', beside.cold_start_ms, flat.cold_start_ms, ' ms');
  report.compare(rows, 'flat_rss', 'memory of the worker', beside.rss_mb, flat.rss_mb, ' MB');
  rows.push(['lost', show(beside.lost), show(flat.lost), '', '', '']);
  rows.push(['duplicated', show(beside.duplicated), show(flat.duplicated), '', '', '']);
  report.clean('flat_nothing_lost_or_duplicated', flat);
  report.table('Tidegate with a large backlog, against Tidegate on an empty database', rows);
}

if (processes) {
  const rows = [['figure', '1 process', `${processes.processes} processes`, 'ratio', 'bar', 'verdict']];
  report.compare(rows, 'processes', 'process, jobs/s, together', processes.process_one_per_s, processes.process_per_s, '', ['>=', 1]);
  rows.push(['lost', '', show(processes.lost), '', '', '']);
  rows.push(['duplicated', '', show(processes.duplicated), '', '', '']);
  report.clean('processes_nothing_lost_or_duplicated', processes);
  report.table(`${processes.processes} Tidegate processes on one database, against 1`, rows);
}

if (steady) {
  const rates = steady.minutes_per_s;
  const total = (minute) => minute?.total_mb;
  const rows = [['figure', 'before', 'at the end', 'ratio', 'bar', 'verdict']];
  report.compare(rows, 'steady', 'process, jobs/s, first and last minute', rates[0], rates.at(-1), '', ['>=', 0.8]);
  // What is kept is kept for a minute, so sizes must have come to rest by half time.
  const half = sizes.slice(0, Math.ceil(sizes.length / 2));
  report.compare(rows, 'steady_size', 'all tables, largest of the first half and end',
    half.length ? Math.max(...half.map(total)) : undefined, total(sizes.at(-1)), ' MB', ['<=', 1.25]);
  rows.push(['lost', '', show(steady.lost), '', '', '']);
  rows.push(['duplicated', '', show(steady.duplicated), '', '', '']);
  report.clean('steady_nothing_lost_or_duplicated', steady);
  report.table(`Tidegate, ${rates.length} minutes of enqueueing and processing at once`, rows);

  const largest = Object.entries(sizes.at(-1)?.tables_mb ?? {}).sort((x, y) => y[1] - x[1]).slice(0, 4).map(([name]) => name);
  const minutes = [['minute', 'jobs/s', 'finished jobs kept', 'all tables', ...largest]];
  rates.forEach((rate, m) => {
    const size = sizes[m];
    minutes.push([`${m + 1}`, show(rate), show(steady.minutes_kept?.[m]), show(total(size), ' MB'),
      ...largest.map((name) => show(size?.tables_mb[name], ' MB'))]);
  });
  report.table('Minute by minute', minutes);
}

if (args.json) {
  const parts = { peer, tidegate: tide, flat, beside, processes, steady, sizes: sizes.length ? sizes : null };
  const out = Object.fromEntries(Object.entries(parts).filter(([, v]) => v));
  console.log(JSON.stringify({ ...out, ratios: report.ratios, verdicts: report.verdicts }, null, 2));
} else {
  report.print();
}
