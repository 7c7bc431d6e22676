// Compares benchmark results and prints a table, or JSON with --json.
//
//   node report.mjs --tidegate FILE... [--peer FILE...] [--flat FILE...] [--http FILE...] [--json]
//
// Of several files of one kind the best value of each figure counts.

import { parseArgs } from 'node:util';
import { best, isNumber, load, Report, show } from './tables.mjs';

const { values: args } = parseArgs({
  options: {
    peer: { type: 'string', multiple: true, default: [] },
    tidegate: { type: 'string', multiple: true, default: [] },
    flat: { type: 'string', multiple: true, default: [] },
    http: { type: 'string', multiple: true, default: [] },
    json: { type: 'boolean', default: false },
  },
});

const peer = best(args.peer.map(load));
const tide = best(args.tidegate.map(load));
const flat = best(args.flat.map(load));
const http = best(args.http.map(load));
const report = new Report();

if (peer) {
  const rows = [['figure', 'BullMQ', 'Tidegate', 'ratio', 'bar', 'verdict']];
  report.compare(rows, 'process', 'process, jobs/s', peer.process_per_s, tide.process_per_s, '', ['>=', 10]);
  report.compare(rows, 'enqueue_single', 'enqueue one by one, jobs/s', peer.enqueue_single_per_s, tide.enqueue_single_per_s, '', ['>=', 2]);
  report.compare(rows, 'enqueue_bulk', 'enqueue in bulk, jobs/s', peer.enqueue_bulk_per_s, tide.enqueue_bulk_per_s, '', ['>=', 8]);
  if (isNumber(peer.enqueue_bulk_one_caller_per_s)) {
    report.compare(rows, 'enqueue_bulk_one_caller', '  (BullMQ with one caller)', peer.enqueue_bulk_one_caller_per_s, tide.enqueue_bulk_per_s, '');
  }
  report.compare(rows, 'pickup_p50', 'pickup p50', peer.pickup_ms?.p50, tide.pickup_ms?.p50, ' ms');
  report.compare(rows, 'pickup_p99', 'pickup p99', peer.pickup_ms?.p99, tide.pickup_ms?.p99, ' ms', ['<=', 0.6]);
  report.compare(rows, 'rss', 'resident memory', peer.rss_mb, tide.rss_mb, ' MB');
  rows.push(['lost', show(peer.lost), show(tide.lost), '', '', '']);
  rows.push(['duplicated', show(peer.duplicated), show(tide.duplicated), '', '', '']);
  report.table(`BullMQ ${peer.version} on Redis ${peer.redis_version} (${peer.settings?.durability ?? 'durability unknown'})`
    + `${peer.runs > 1 ? `, best of ${peer.runs} runs` : ''}, against Tidegate on SQLite${tide.runs > 1 ? `, best of ${tide.runs}` : ''}`, rows);
} else {
  report.table('Tidegate on SQLite', [
    ['figure', 'Tidegate'],
    ['process, jobs/s', show(tide.process_per_s)],
    ['enqueue one by one, jobs/s', show(tide.enqueue_single_per_s)],
    ['enqueue in bulk, jobs/s', show(tide.enqueue_bulk_per_s)],
    ['pickup p50', show(tide.pickup_ms?.p50, ' ms')],
    ['pickup p99', show(tide.pickup_ms?.p99, ' ms')],
    ['resident memory', show(tide.rss_mb, ' MB')],
    ['lost', show(tide.lost)],
    ['duplicated', show(tide.duplicated)],
  ]);
}
report.clean('nothing_lost_or_duplicated', tide);

if (flat) {
  const rows = [['figure', 'reference', 'with backlog', 'ratio', 'bar', 'verdict']];
  report.compare(rows, 'flat_process', 'process, jobs/s, to empty', tide.process_per_s, flat.process_per_s, '', ['>=', 0.85]);
  if (peer) report.compare(rows, 'flat_process_to_peer', 'process, jobs/s, to BullMQ', peer.process_per_s, flat.process_per_s, '', ['>=', 8.5]);
  report.compare(rows, 'flat_pickup_p99', 'pickup p99, to empty', tide.pickup_ms?.p99, flat.pickup_ms?.p99, ' ms', ['<=', 2]);
  report.absolute(rows, 'flat_cold_start', 'cold start', flat.cold_start_ms, ' ms', ['<', 5000]);
  report.compare(rows, 'flat_rss', 'resident memory', tide.rss_mb, flat.rss_mb, ' MB');
  rows.push(['lost', show(tide.lost), show(flat.lost), '', '', '']);
  rows.push(['duplicated', show(tide.duplicated), show(flat.duplicated), '', '', '']);
  report.clean('flat_nothing_lost_or_duplicated', flat);
  report.table('Tidegate with a large backlog, against Tidegate on an empty database', rows);
}

if (http) {
  const rows = [['figure', peer ? 'BullMQ, in process' : 'Tidegate, in process', 'Tidegate over HTTP', 'ratio', 'bar', 'verdict']];
  const other = peer ?? tide;
  const bar = (at) => (peer ? at : undefined);
  report.compare(rows, 'http_process', 'process, jobs/s', other.process_per_s, http.process_per_s, '', bar(['>=', 2]));
  report.compare(rows, 'http_enqueue_single', 'enqueue one by one, jobs/s', other.enqueue_single_per_s, http.enqueue_single_per_s, '', bar(['>=', 0.8]));
  report.compare(rows, 'http_enqueue_library', '  (by the library)', other.enqueue_single_per_s, http.enqueue_library_per_s, '');
  report.absolute(rows, 'http_pickup_p99', 'pickup p99, by long poll', http.pickup_ms?.p99, ' ms', ['<=', 3]);
  rows.push(['lost', show(other.lost), show(http.lost), '', '', '']);
  rows.push(['duplicated', show(other.duplicated), show(http.duplicated), '', '', '']);
  report.clean('http_nothing_lost_or_duplicated', http);
  report.table('Tidegate over HTTP (a server process on SQLite), against the same figures in process', rows);
}

if (args.json) {
  const out = { ...(peer ? { peer } : {}), tidegate: tide, ...(flat ? { flat } : {}), ...(http ? { http } : {}), ratios: report.ratios, verdicts: report.verdicts };
  console.log(JSON.stringify(out, null, 2));
} else {
  report.print();
}
