// Comparing figures, judging them by their bars, and printing tables. Shared by the reports.

import { readFileSync } from 'node:fs';

export function load(file) {
  const text = readFileSync(file, 'utf8');
  try {
    return JSON.parse(text);
  } catch (e) {
    throw new Error(`${file}: not one JSON object (${e.message})`);
  }
}

// Best of several runs, figure by figure; lost and duplicated take the worst.
export function best(runs) {
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
  for (const key of Object.keys(lean).filter((k) => k.endsWith('rss_mb'))) out[key] = lean[key];
  if (lead.pickup_ms) out.pickup_ms = Object.fromEntries(
    Object.keys(lead.pickup_ms).map((q) => [q, Math.min(...runs.map((r) => r.pickup_ms[q]))]),
  );
  out.runs = runs.length;
  return out;
}

export const isNumber = (x) => typeof x === 'number' && Number.isFinite(x);
const group = (x) => x.toLocaleString('en-US', { maximumFractionDigits: x < 100 ? 2 : 0 });
export const show = (x, unit = '') => (isNumber(x) ? group(x) + unit : '-');
const times = (x) => (isNumber(x) ? `${x.toFixed(2)}x` : '-');
const barText = ([op, limit], unit) => `${op} ${group(limit)}${unit}`;

const ratio = (a, b) => (isNumber(a) && isNumber(b) && b > 0 ? a / b : null);
const verdict = (value, [op, limit]) => {
  if (!isNumber(value)) return 'missing';
  const met = op === '>=' ? value >= limit : op === '<=' ? value <= limit : value < limit;
  return met ? 'met' : 'missed';
};

// Ratios, verdicts and tables of one report.
export class Report {
  ratios = {};
  verdicts = {};
  tables = [];

  // One table row; `key` names it in the ratios and verdicts.
  compare(rows, key, label, base, ours, unit, bar) {
    const r = ratio(ours, base);
    this.ratios[key] = isNumber(r) ? Number(r.toFixed(3)) : null;
    if (bar) this.verdicts[key] = verdict(r, bar); // judged before rounding
    rows.push([label, show(base, unit), show(ours, unit), times(r), bar ? barText(bar, 'x') : '', bar ? this.verdicts[key] : '']);
  }

  // A row that is judged by itself.
  absolute(rows, key, label, ours, unit, bar) {
    this.verdicts[key] = verdict(ours, bar);
    rows.push([label, '', show(ours, unit), '', barText(bar, unit), this.verdicts[key]]);
  }

  // Nothing lost, nothing run twice.
  clean(key, run) {
    const known = isNumber(run.lost) && isNumber(run.duplicated);
    this.verdicts[key] = !known ? 'missing' : run.lost === 0 && run.duplicated === 0 ? 'met' : 'missed';
  }

  table(title, rows) {
    this.tables.push([title, rows]);
  }

  // Prints the tables and what was not met.
  print() {
    for (const [title, rows] of this.tables) {
      const width = rows[0].map((_, c) => Math.max(...rows.map((r) => r[c].length)));
      const line = (cells) => `| ${cells.map((s, c) => (c === 0 ? s.padEnd(width[c]) : s.padStart(width[c]))).join(' | ')} |`;
      console.log(`${title}\n`);
      console.log(line(rows[0]));
      console.log(`|${width.map((w, c) => (c === 0 ? '-'.repeat(w + 2) : `${'-'.repeat(w + 1)}:`)).join('|')}|`);
      rows.slice(1).forEach((r) => console.log(line(r)));
      console.log('');
    }
    const bad = Object.entries(this.verdicts).filter(([, v]) => v !== 'met').map(([k, v]) => `${k} ${v}`);
    console.log(bad.length ? `Not met: ${bad.join(', ')}` : 'All bars met.');
  }
}
