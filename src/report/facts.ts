import { formatCount, formatInteger, formatNumber } from '../charts/format';
import type { IRunDetail } from '../client/runs-api';
import type { Layout, Model, Status } from '../protocol/messages.generated';
import { layerWords } from '../views/shared/layers';
import type { Translate } from '../views/shared/translate';
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
  overheads: readonly number[],
  t: Translate
): IFacts {
  const titleOf: TitleOf = flag => hello.flags.find(({ name }) => name === flag)?.title ?? flag;
  const versions = Object.entries(hello.versions).map(([name, version]) => `${name} ${version}`);
  const entries: [string, string][] = [
    [
      t('State'),
      t('%1 at step %2, started %3', status.state, formatInteger(status.step), dateText(hello.run.started))
    ],
    [t('Model'), modelWords(hello.model, t)],
    [t('Layout'), layoutWords(hello.layout, t)],
    [t('Tracing cost'), overheadWords(status, overheads.filter(Number.isFinite), t)],
    [t('Probes'), probeWords(status, t)],
    [t('Compiled code'), compiledWords(status, t)],
    [t('Not finite'), nonFiniteWords(status, titleOf, t)],
    [t('Given up'), droppedWords(status, t)],
    [t('Versions'), versions.join(', ') || t('not recorded')],
    ...(status.warnings ?? []).map((warning): [string, string] => [t('Note'), warning]),
    ...truncated.map((stream): [string, string] => [
      t('Note'),
      t('The recording of %1 was cut short; everything up to its last whole message is here.', stream)
    ])
  ];
  const changes = changesOf(audit, titleOf, t);
  return {
    name: cleanPaths(hello.run.name),
    id: hello.run.id,
    facts: entries.filter(([, text]) => text).map(([term, text]) => [term, cleanPaths(text)]),
    traced: traced.map(row => {
      const title = titleOf(row.flag);
      const span = t('%1 to %2', formatInteger(row.first), formatInteger(row.last));
      return [
        title === row.flag ? title : `${title} (${row.flag})`,
        layerWords(
          [...row.layers].sort((a, b) => a - b),
          t
        ),
        cleanPaths(row.compressor),
        `${row.steps === 1 ? t('1 step') : t('%1 steps', formatInteger(row.steps))}, ${span}`
      ];
    }),
    changes: changes.map(([step, text]) => [step, cleanPaths(text)]),
    events: eventWords(audit)
  };
}

type TitleOf = (flag: string) => string;

function modelWords(model: Model | null, t: Translate): string {
  if (model === null) {
    return t('not announced');
  }
  return [
    model.name,
    model.layers ? t('%1 layers', model.layers) : '',
    model.hidden ? t('%1 hidden', model.hidden) : '',
    model.heads ? t('%1 heads', model.heads) : '',
    model.parameters ? t('%1 parameters', formatCount(model.parameters)) : '',
    model.dtype ?? '',
    model.device ?? ''
  ]
    .filter(Boolean)
    .join(', ');
}

function layoutWords(layout: Layout | null, t: Translate): string {
  return layout === null
    ? ''
    : `TP ${layout.tp}, PP ${layout.pp}, DP ${layout.dp}, ${layout.world_size === 1 ? t('1 rank') : t('%1 ranks', layout.world_size)}`;
}

function overheadWords({ overhead }: Status, values: readonly number[], t: Translate): string {
  const text = (value: number): string => formatNumber(value, 2);
  if (overhead) {
    return t(
      '%1 % of step time (95 % interval %2 to %3)',
      text(overhead.percent),
      text(overhead.low),
      text(overhead.high)
    );
  }
  if (values.length === 0) {
    return t('not measured');
  }
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const span = t('%1 to %2', text(Math.min(...values)), text(Math.max(...values)));
  return t('%1 % of step time (mean of %2 measurements, %3)', text(mean), values.length, span);
}

function probeWords({ probes }: Status, t: Translate): string {
  if (!probes) {
    return '';
  }
  const groups = probes.reasons ?? [{ reason: '', missing: probes.missing }];
  const silent = groups
    .filter(({ missing }) => missing.length > 0)
    .map(
      ({ missing, reason }) =>
        `${t('; silent: %1', missing.slice(0, 5).join(', '))}${reason && ` (${reason})`}`
    );
  return `${t('%1 of %2 fired', probes.fired, probes.expected)}${silent.join('')}`;
}

function compiledWords({ compiled }: Status, t: Translate): string {
  return compiled ? t('with probes, %1 times, of that again: %2', compiled.times, compiled.again) : '';
}

function nonFiniteWords({ nonfinite }: Status, titleOf: TitleOf, t: Translate): string {
  if (!nonfinite) {
    return '';
  }
  const { first, count } = nonfinite;
  const where = first
    ? t(', first at step %1 in %2 of %3', first.step, layerWords([first.layer], t), titleOf(first.flag))
    : '';
  return `${t('%1 entries', formatInteger(count))}${where}`;
}

function droppedWords({ dropped }: Status, t: Translate): string {
  return (['producer', 'recorder'] as const)
    .filter(key => dropped?.[key])
    .map(key => t('%1 rows at the %2', formatInteger(dropped?.[key] ?? 0), key))
    .join('; ');
}

function changesOf(audit: readonly IAuditRow[], titleOf: TitleOf, t: Translate): [string, string][] {
  const changes = audit
    .filter(({ action }) => action === 'configure')
    .map(({ step, who, detail }): [string, string] => [
      step >= 0 ? formatInteger(step) : '–',
      t('%1 (by %2)', changeText(detail, titleOf, t), PROGRAMS.includes(who) ? who : t('a viewer'))
    ]);
  const over = changes.length - MOST_CHANGES;
  return over > 0 ? [['…', t('%1 earlier changes', over)], ...changes.slice(over)] : changes;
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
function changeText(detail: string, titleOf: TitleOf, t: Translate): string {
  let flags: unknown;
  try {
    flags = (JSON.parse(detail) as { patch?: { flags?: unknown } } | null)?.patch?.flags;
  } catch {
    return t('settings changed');
  }
  return isObject(flags)
    ? Object.entries(flags)
        .map(([flag, setting]) => flagChange(titleOf(flag), setting, t))
        .join('; ') || t('settings changed')
    : t('settings changed');
}

function flagChange(flag: string, setting: unknown, t: Translate): string {
  const compressor = isObject(setting) ? setting['compressor'] : null;
  if (!isObject(setting) || !isObject(compressor)) {
    return t('%1 off', flag);
  }
  const params = isObject(compressor['params']) ? Object.entries(compressor['params']) : [];
  const text = params.map(([name, value]) => `${name}=${literal(value)}`).join(', ');
  const { layers = 'all' } = setting;
  const where = layers === 'all' ? t('all layers') : t('layers %1', String(layers));
  return t('%1 as %2, %3', flag, `${String(compressor['name'])}(${text})`, where);
}

function literal(value: unknown): string {
  return typeof value === 'string' ? `'${value}'` : JSON.stringify(value);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
