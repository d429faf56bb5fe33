import { formatCount, formatInteger, formatNumber } from '../charts/format';
import type { IRunDetail } from '../client/runs-api';
import type { Layout, Model, Status } from '../protocol/messages.generated';
import { layerWords } from '../views/shared/layers';
import { cleanPaths } from '../views/shared/clean-paths';

/**
 * What a report says of its run apart from the views. No token, no local path, no name of a machine or a
 * person.
 */
export interface IFacts {
  readonly name: string;
  readonly id: string;
  /** Term and what is said of it. */
  readonly facts: readonly (readonly [string, string])[];
  /** Flag, layers, compressor and steps of everything that was traced. */
  readonly traced: readonly (readonly string[])[];
  /** Step and what was changed there while the run went on. */
  readonly changes: readonly (readonly [string, string])[];
  /** What else the audit holds, counted; empty when nothing. */
  readonly events: string;
}

export interface ITraced {
  readonly flag: string;
  readonly compressor: string;
  readonly first: number;
  readonly last: number;
  readonly steps: number;
  readonly layers: readonly number[];
}

export interface IAuditRow {
  readonly step: number;
  readonly who: string;
  readonly action: string;
  readonly detail: string;
}

const MOST_CHANGES = 20;
/** Programs call themselves so; whatever else a viewer calls itself may be a person's name. */
const PROGRAMS = ['panel', 'kernel', 'tail', 'tracer', 'server'];

/** Write seconds since the epoch as a date and time in UTC, or a dash. */
export function dateText(seconds: number): string {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? '–' : `${date.toISOString().slice(0, 16).replace('T', ' ')} UTC`;
}

/**
 * Say what there is to say of a run.
 *
 * @param overheads - What the tracer measured of its own cost, per cent of step time; used where the status
 * has no summary of it.
 */
export function factsOf(
  { hello, status, truncated }: IRunDetail,
  traced: readonly ITraced[],
  audit: readonly IAuditRow[],
  overheads: readonly number[]
): IFacts {
  const titleOf: TitleOf = flag => hello.flags.find(({ name }) => name === flag)?.title ?? flag;
  const versions = Object.entries(hello.versions).map(([name, version]) => `${name} ${version}`);
  const entries: [string, string][] = [
    [
      'State',
      `${status.state} at step ${formatInteger(status.step)}, started ${dateText(hello.run.started)}`
    ],
    ['Model', modelWords(hello.model)],
    ['Layout', layoutWords(hello.layout)],
    ['Tracing cost', overheadWords(status, overheads.filter(Number.isFinite))],
    ['Probes', probeWords(status)],
    ['Compiled code', compiledWords(status)],
    ['Not finite', nonFiniteWords(status, titleOf)],
    ['Given up', droppedWords(status)],
    ['Versions', versions.join(', ') || 'not recorded'],
    ...(status.warnings ?? []).map((warning): [string, string] => ['Note', warning]),
    ...truncated.map((stream): [string, string] => [
      'Note',
      `The recording of ${stream} was cut short; everything up to its last whole message is here.`
    ])
  ];
  const changes = changesOf(audit, titleOf);
  return {
    name: cleanPaths(hello.run.name),
    id: hello.run.id,
    facts: entries.filter(([, text]) => text).map(([term, text]) => [term, cleanPaths(text)]),
    traced: traced.map(row => {
      const title = titleOf(row.flag);
      const span = `${formatInteger(row.first)} to ${formatInteger(row.last)}`;
      return [
        title === row.flag ? title : `${title} (${row.flag})`,
        layerWords([...row.layers].sort((a, b) => a - b)),
        cleanPaths(row.compressor),
        `${formatInteger(row.steps)} step${row.steps === 1 ? '' : 's'}, ${span}`
      ];
    }),
    changes: changes.map(([step, text]) => [step, cleanPaths(text)]),
    events: eventWords(audit)
  };
}

type TitleOf = (flag: string) => string;

function modelWords(model: Model | null): string {
  if (model === null) {
    return 'not announced';
  }
  return [
    model.name,
    model.layers ? `${model.layers} layers` : '',
    model.hidden ? `${model.hidden} hidden` : '',
    model.heads ? `${model.heads} heads` : '',
    model.parameters ? `${formatCount(model.parameters)} parameters` : '',
    model.dtype ?? '',
    model.device ?? ''
  ]
    .filter(Boolean)
    .join(', ');
}

function layoutWords(layout: Layout | null): string {
  return layout === null
    ? ''
    : `TP ${layout.tp}, PP ${layout.pp}, DP ${layout.dp}, ${layout.world_size} rank${layout.world_size === 1 ? '' : 's'}`;
}

function overheadWords({ overhead }: Status, values: readonly number[]): string {
  const text = (value: number): string => formatNumber(value, 2);
  if (overhead) {
    return `${text(overhead.percent)} % of step time (95 % interval ${text(overhead.low)} to ${text(overhead.high)})`;
  }
  if (values.length === 0) {
    return 'not measured';
  }
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const span = `${text(Math.min(...values))} to ${text(Math.max(...values))}`;
  return `${text(mean)} % of step time (mean of ${values.length} measurements, ${span})`;
}

function probeWords({ probes }: Status): string {
  if (!probes) {
    return '';
  }
  const groups = probes.reasons ?? [{ reason: '', missing: probes.missing }];
  const silent = groups
    .filter(({ missing }) => missing.length > 0)
    .map(({ missing, reason }) => `; silent: ${missing.slice(0, 5).join(', ')}${reason && ` (${reason})`}`);
  return `${probes.fired} of ${probes.expected} fired${silent.join('')}`;
}

function compiledWords({ compiled }: Status): string {
  return compiled ? `with probes, ${compiled.times} times, of that again: ${compiled.again}` : '';
}

function nonFiniteWords({ nonfinite }: Status, titleOf: TitleOf): string {
  if (!nonfinite) {
    return '';
  }
  const { first, count } = nonfinite;
  const where = first
    ? `, first at step ${first.step} in ${layerWords([first.layer])} of ${titleOf(first.flag)}`
    : '';
  return `${formatInteger(count)} entries${where}`;
}

function droppedWords({ dropped }: Status): string {
  return (['producer', 'recorder'] as const)
    .filter(key => dropped?.[key])
    .map(key => `${formatInteger(dropped?.[key] ?? 0)} rows at the ${key}`)
    .join('; ');
}

function changesOf(audit: readonly IAuditRow[], titleOf: TitleOf): [string, string][] {
  const changes = audit
    .filter(({ action }) => action === 'configure')
    .map(({ step, who, detail }): [string, string] => [
      step >= 0 ? formatInteger(step) : '–',
      `${changeText(detail, titleOf)} (by ${PROGRAMS.includes(who) ? who : 'a viewer'})`
    ]);
  const over = changes.length - MOST_CHANGES;
  return over > 0 ? [['…', `${over} earlier changes`], ...changes.slice(over)] : changes;
}

function eventWords(audit: readonly IAuditRow[]): string {
  const counts = new Map<string, number>();
  audit
    .filter(({ action }) => action !== 'configure')
    .forEach(({ action }) => counts.set(action, (counts.get(action) ?? 0) + 1));
  return [...counts]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([action, count]) => `${count} × ${action}`)
    .join(', ');
}

/**
 * Say what a patch changed. Its text came from a viewer, so it is read with care and never shown as it is.
 */
function changeText(detail: string, titleOf: TitleOf): string {
  let flags: unknown;
  try {
    flags = (JSON.parse(detail) as { patch?: { flags?: unknown } } | null)?.patch?.flags;
  } catch {
    return 'settings changed';
  }
  return isObject(flags)
    ? Object.entries(flags)
        .map(([flag, setting]) => flagChange(titleOf(flag), setting))
        .join('; ') || 'settings changed'
    : 'settings changed';
}

function flagChange(flag: string, setting: unknown): string {
  const compressor = isObject(setting) ? setting['compressor'] : null;
  if (!isObject(setting) || !isObject(compressor)) {
    return `${flag} off`;
  }
  const params = isObject(compressor['params']) ? Object.entries(compressor['params']) : [];
  const text = params.map(([name, value]) => `${name}=${literal(value)}`).join(', ');
  const { layers = 'all' } = setting;
  const where = layers === 'all' ? 'all layers' : `layers ${String(layers)}`;
  return `${flag} as ${String(compressor['name'])}(${text}), ${where}`;
}

function literal(value: unknown): string {
  return typeof value === 'string' ? `'${value}'` : JSON.stringify(value);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
