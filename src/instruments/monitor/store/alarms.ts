import { byName, own } from '../../../protocol/records';
import { readableStreams } from '../../../protocol/streams';
import { boundedText } from '../../../protocol/texts';
import { parseName } from '../../../protocol/tensor-name';
import type { IReportPart } from '../../../report/report-part';
import type { IStreamRows } from '../../../store/row-store';
import type { IRunEvent } from '../../../store/run-events';
import type { IRunSource } from '../../../store/source';
import { loadSentences } from '../../../views/shared/said';

/** How grave an alarm is, the gravest first. */
export const SEVERITIES = ['critical', 'warning', 'note'] as const;

export type Severity = (typeof SEVERITIES)[number];

/** A row of the stream `alarms`: see `protocol/streams.json`. */
export interface IAlarm {
  readonly step: number;
  /** -1 where it is of no single rank. */
  readonly rank: number;
  /** -1 where it is of the whole step. */
  readonly microBatch: number;
  readonly rule: string;
  readonly severity: Severity;
  readonly direction: string;
  readonly stat: string;
  readonly name: string;
  readonly statistic: string;
  readonly value: number;
  /** NaN where no number says it. */
  readonly expected: number;
  readonly sentence: string;
  /** Place in the order of the step's computation. */
  readonly place: number;
  /** Ids of the step's training samples as JSON; empty where unknown. */
  readonly samples: string;
  /** Number of its cause; 0 where nobody judged what follows from what. */
  readonly cause: number;
}

/** Whether an alarm follows from an earlier one: then it is a note of it. */
export const follows = ({ cause, severity }: IAlarm): boolean => cause > 0 && severity === 'note';

/** What followed from an alarm: the notes of its cause. */
export const followersOf = (alarms: readonly IAlarm[], first: IAlarm): IAlarm[] =>
  alarms.filter(each => follows(each) && each.cause === first.cause);

/** A text of anybody's rules, as a page can show it. */
const shownText = (text: string): string => boundedText(text, 400).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '\ufffd');

const NUMBERS = ['step', 'rank', 'value', 'expected', 'place'] as const;
const TEXTS = ['rule', 'direction', 'stat', 'name', 'statistic'] as const;

/** The alarms of a run's rows, in the order in which they happened. */
export function alarmsOf({ length, columns }: IStreamRows): IAlarm[] {
  const alarms = Array.from({ length }, (_, at): IAlarm => {
    const number = (name: string): number => Number(own(columns, name)?.[at] ?? NaN);
    const text = (name: string): string => String(own(columns, name)?.[at] ?? '');
    return {
      ...byName(NUMBERS, number),
      ...byName(TEXTS, text),
      microBatch: number('micro_batch'),
      // A severity of a later version is a note here.
      severity: SEVERITIES.find(each => each === text('severity')) ?? 'note',
      sentence: shownText(text('sentence')),
      samples: shownText(text('samples')),
      cause: number('cause') || 0
    };
  });
  return alarms.sort((a, b) => a.step - b.step || a.place - b.place);
}

export async function readAlarms(
  source: Pick<IRunSource, 'hello' | 'table'>,
  signal?: AbortSignal
): Promise<IAlarm[]> {
  if (!readableStreams(source.hello?.streams).has('alarms')) {
    return [];
  }
  const [rows] = await Promise.all([source.table('alarms', {}, signal), loadSentences()]);
  return alarmsOf(rows);
}

/** The first thing that went wrong, of alarms in their order; null where nothing did. */
export function firstAnomaly(alarms: readonly IAlarm[]): IAlarm | null {
  return alarms.find(each => each.severity !== 'note') ?? null;
}

/** The module that an alarm's tensor belongs to: its name without its last component. */
export function moduleOf({ name }: Pick<IAlarm, 'name'>): string {
  const { kind } = parseName(name);
  const rest = name.slice(0, -kind.length - 1);
  return name.endsWith(kind) && rest !== '' ? rest : name;
}

/** What an anomaly reached later: each other part's, module's and rank's first alarm, in order. What has
 * another cause is left out. */
export function reachedFrom(alarms: readonly IAlarm[], first: IAlarm): IAlarm[] {
  const key = (each: IAlarm): string => `${each.direction}\n${moduleOf(each)}\n${each.rank}`;
  const seen = new Set([key(first)]);
  return alarms.slice(alarms.indexOf(first) + 1).filter(each => {
    const isOf = first.cause > 0 && each.cause > 0 ? each.cause === first.cause : each.severity !== 'note';
    const isNew = isOf && !seen.has(key(each));
    seen.add(key(each));
    return isNew;
  });
}

/** A rule, or a tensor under it, whose alarms nobody is to be told of. `*` and `?` stand for anything. */
export interface IMuted {
  readonly rule?: string;
  readonly name?: string;
}

export function isMuted(alarm: Pick<IAlarm, 'name' | 'rule'>, muted: readonly IMuted[]): boolean {
  return muted.some(
    ({ rule = '*', name = '*' }) => globbed(rule).test(alarm.rule) && globbed(name).test(alarm.name)
  );
}

/**
 * Alarms that nobody muted. Where the first of a cause is muted, the next that followed is told in its place.
 */
export function unmuted(alarms: readonly IAlarm[], muted: readonly IMuted[]): readonly IAlarm[] {
  if (muted.length === 0) {
    return alarms;
  }
  const [hidden, told] = [true, false].map(is => alarms.filter(each => isMuted(each, muted) === is));
  const firsts = new Map(hidden?.flatMap(each => (each.severity === 'note' ? [] : [[each.cause, each]])));
  return (told ?? []).map(each => {
    const first = follows(each) ? firsts.get(each.cause) : undefined;
    if (first === undefined) {
      return each;
    }
    firsts.delete(each.cause);
    // A note does not say how grave its rule is.
    return { ...each, severity: each.rule === first.rule ? first.severity : 'warning' };
  });
}

function globbed(pattern: string): RegExp {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, '\\$&');
  return new RegExp(`^${escaped.replace(/\*/g, '.*').replace(/\?/g, '.')}$`, 's');
}

/** Settings of the rules of a run; undefined where nothing judges it. */
export function monitorSettings({ hello }: Pick<IRunSource, 'hello'>): unknown {
  return own(hello?.config.instruments ?? {}, 'monitor');
}

/** What settings of the rules say is muted. */
export function mutesOf(settings: unknown): IMuted[] {
  const muted = memberOf(settings, 'muted');
  return Array.isArray(muted) ? muted.filter(isMute) : [];
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null
    ? own(value as Record<string, unknown>, name)
    : undefined;
}

function isMute(value: unknown): value is IMuted {
  const texts = [memberOf(value, 'rule') ?? '*', memberOf(value, 'name') ?? '*'];
  return typeof value === 'object' && texts.every(text => typeof text === 'string');
}

/** Alarms as events of a run: one for each step and severity. */
export function alarmEvents(alarms: readonly IAlarm[]): IRunEvent[] {
  const groups = new Map<string, IAlarm[]>();
  for (const alarm of alarms.filter(each => each.severity !== 'note')) {
    const key = `${alarm.step} ${alarm.severity}`;
    const group = groups.get(key) ?? [];
    group.push(alarm);
    groups.set(key, group);
  }
  return [...groups.values()].flatMap(group => {
    const [first] = group;
    const more = group.length > 1 ? ` And ${group.length - 1} more of this step.` : '';
    return first
      ? [
          {
            kind: 'alarm' as const,
            first: first.step,
            last: first.step,
            text: `${first.name === first.rule ? '' : `${first.rule}, `}${first.name}: ${first.sentence}${more}`
          }
        ]
      : [];
  });
}

/** What a report shows of the alarms of a run. */
export async function lookForReport(run: IRunSource): Promise<IReportPart> {
  const alarms = await run.table('alarms').catch(() => null);
  return { has: { alarms: (alarms?.length ?? 0) > 0 } };
}
