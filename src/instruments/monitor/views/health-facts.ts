import type { HealthOptions } from '../../../protocol/views.generated';
import { readScalars } from '../../../aggregate';
import { groupMoments } from '../../../aggregate/group-moments';
import { own } from '../../../protocol/records';
import { ReadOnce } from '../../../store/read-once';
import type { IRunSource, SourceChange } from '../../../store/source';
import type { Loaded } from '../../../views/shared/content';
import { PartModel } from '../../../views/shared/view-model';
import type { IAlarm, Severity } from '../store/alarms';
import {
  moduleOf,
  SEVERITIES,
  firstAnomaly,
  isMuted,
  monitorSettings,
  mutesOf,
  unmuted,
  readAlarms,
  follows
} from '../store/alarms';
import { formatInteger, formatNumber } from '../../../charts';
import { said } from '../../../views/shared/said';
import { shortName } from '../../../views/shared/short-name';
import type { Translate } from '../../../views/shared/translate';
import type { Change, RuleSettings } from './rule-settings';

export function appliedWords(change: Change, t: Translate): string {
  switch (change.kind) {
    case 'none':
      return '';
    case 'sent':
      return t('Asking the run…');
    case 'accepted':
      return t('Applies at step %1.', formatInteger(change.step));
    case 'applied':
      return t('In force since step %1.', formatInteger(change.step));
    case 'refused':
      return t('Nothing was changed. %1', change.message);
  }
}

/** Alarms of an edited rule in the recording, and as they would have been: `3 → 7`. Empty if not edited. */
export function countedWords({ counts, edited }: RuleSettings, rule: string, t: Translate): string {
  if (!edited.includes(rule)) {
    return '';
  }
  switch (counts.kind) {
    case 'counting':
      return t('counting…');
    case 'counted': {
      const [before, after] = [counts.inForce, counts.edited].map(each => own(each.rules, rule) ?? 0);
      return t('%1 → %2', formatInteger(before ?? 0), formatInteger(after ?? 0));
    }
    default:
      return '–';
  }
}

/** Most parts of the way that a sentence tells. */
const MOST_PARTS = 4;
const MOST_LETTERS = 48;

export function severityWords(severity: Severity, t: Translate): string {
  return { critical: t('critical'), warning: t('warning'), note: t('note') }[severity];
}

export function directionWords(direction: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    parameters: t('parameters'),
    forward: t('forward pass'),
    loss: t('loss'),
    backward: t('backward pass'),
    reduction: t('gradient reduction'),
    optimizer: t('optimizer'),
    update: t('parameter update'),
    // Of the timeline's alarms.
    compute: t('compute'),
    communication: t('communication')
  };
  return own(words, direction) ?? direction;
}

/** What of the tensor an alarm is about; the name of an own rule's statistic stays as it is. */
export function statisticWords(statistic: string, t: Translate): string {
  const words: Readonly<Record<string, string>> = {
    rms: t('rms'),
    max_abs: t('largest value'),
    max_exponent: t('largest exponent'),
    nan_count: t('NaN values'),
    inf_count: t('infinite values'),
    update: t('update'),
    level: t('level'),
    growth: t('growth'),
    gradient: t('gradient'),
    rate: t('learning rate'),
    state: t('state'),
    steps: t('steps'),
    norm: t('norm'),
    ratio: t('ratio'),
    share: t('share'),
    scale: t('scale'),
    difference: t('difference'),
    peak: t('peak'),
    count: t('count'),
    mean: t('mean')
  };
  return own(words, statistic) ?? statistic;
}

/** Say where in the job and step an alarm is: `rank 3, micro-batch 0`; '' where it is of all. */
export function whereWords({ rank, microBatch }: IAlarm, t: Translate): string {
  return [
    ...(rank >= 0 ? [t('rank %1', rank)] : []),
    ...(microBatch >= 0 ? [t('micro-batch %1', microBatch)] : [])
  ].join(', ');
}

/** Name a part of a step and its module: `backward pass of layers.3.mlp.fc`, `loss`. */
function partWords(alarm: IAlarm, t: Translate): string {
  const [part, module] = [directionWords(alarm.direction, t), moduleOf(alarm)];
  return part === module ? part : t('%1 of %2', part, shortName(module, MOST_LETTERS));
}

/** Name the first anomaly: `First anomaly at step 1 240: backward pass of layers.3.mlp.fc, rank 1`. */
export function firstTitle(first: IAlarm, t: Translate): string {
  const where = whereWords(first, t);
  const title = t('First anomaly at step %1: %2', formatInteger(first.step), partWords(first, t));
  return where === '' ? title : `${title}, ${where}`;
}

/**
 * Say what the first anomaly is, what it should have been, what it reached next, how many alarms followed,
 * and with which samples.
 */
export function firstCaption(
  first: IAlarm,
  reached: readonly IAlarm[],
  followed: number,
  t: Translate
): string[] {
  const { name, value, expected } = first;
  const statistic = statisticWords(first.statistic, t);
  const what = Number.isNaN(expected)
    ? t('%1 of %2: %3.', statistic, name, formatNumber(value))
    : t('%1 of %2: %3, expected %4.', statistic, name, formatNumber(value), formatNumber(expected));
  const parts = reached
    .slice(0, MOST_PARTS)
    .map(each =>
      [
        partWords(each, t),
        ...(each.rank !== first.rank && each.rank >= 0 ? [t('on rank %1', each.rank)] : []),
        ...(each.step !== first.step ? [t('at step %1', formatInteger(each.step))] : [])
      ].join(' ')
    );
  const more = reached.length - parts.length;
  return [
    said(first.sentence, t),
    what,
    ...(parts.length === 0
      ? []
      : [
          more > 0
            ? t('Next it reached %1, and %2 more.', parts.join(', then '), formatInteger(more))
            : t('Next it reached %1.', parts.join(', then '))
        ]),
    ...(followed === 0 ? [] : [followedWords(followed, t)]),
    ...(first.samples === '' ? [] : [t('Samples of that step: %1.', samplesText(first.samples))])
  ];
}

const followedWords = (followed: number, t: Translate): string =>
  followed === 1
    ? t('One more finding followed from the same cause.')
    : t('%1 more findings followed from the same cause.', formatInteger(followed));

/** Ids of samples as people read them; anybody's text, so only so much of it. */
function samplesText(samples: string): string {
  const text = samples
    .replace(/^\[|\]$/g, '')
    .replace(/["\p{C}]/gu, '')
    .replace(/,\s*/g, ', ');
  return text.length > 120 ? `${text.slice(0, 119)}…` : text;
}

/** Count alarms by severity: `2 critical, 14 warnings, 11 that followed`. */
export function countWords(alarms: readonly IAlarm[], t: Translate): string {
  const followed = alarms.filter(follows).length;
  const count = (severity: Severity): number => alarms.filter(each => each.severity === severity).length;
  const [critical, warnings, notes] = [count('critical'), count('warning'), count('note') - followed];
  const words = [
    ...(critical > 0 ? [t('%1 critical', formatInteger(critical))] : []),
    ...(warnings > 0 ? [warnings === 1 ? t('1 warning') : t('%1 warnings', formatInteger(warnings))] : []),
    ...(notes > 0 ? [notes === 1 ? t('1 note') : t('%1 notes', formatInteger(notes))] : []),
    ...(followed > 0 ? [t('%1 that followed', formatInteger(followed))] : [])
  ];
  return words.join(', ');
}

/** Value and expectation are told as a ratio from this on; nearer ones by the rule's own sentence. */
const APART = 1.1;

/** Say an alarm by its subject: `loss is 8.23, 3.1 × …`; where no number says it, by its rule's sentence. */
export function alarmWords(alarm: IAlarm, t: Translate): string {
  const { expected, name, sentence, statistic, value } = alarm;
  const where = whereWords(alarm, t);
  const short = shortName(name, MOST_LETTERS);
  const subject =
    statistic === '' || statistic === 'value' ? short : `${short} ${statisticWords(statistic, t)}`;
  const placed = (words: string): string => (where === '' ? words : `${words}, ${where}`);
  const ratio = value / expected;
  if (!Number.isFinite(value)) {
    return t('%1 is %2', placed(subject), Number.isNaN(value) ? 'NaN' : value > 0 ? '∞' : '−∞');
  }
  const isApart = Number.isFinite(ratio) && (ratio >= APART || (ratio > 0 && ratio <= 1 / APART));
  return isApart
    ? t('%1 is %2, %3 × what was expected', placed(subject), formatNumber(value, 3), formatNumber(ratio, 2))
    : `${placed(short)}: ${said(sentence, t)}`;
}

/** Alarms of one rule in one module. */
export interface IAlarmGroup {
  readonly rule: string;
  readonly module: string;
  readonly severity: Severity;
  readonly count: number;
  readonly last: number;
  readonly first: IAlarm;
}

/** Alarms by rule and module, the gravest first and among them the earliest. */
export function groupAlarms(alarms: readonly IAlarm[]): IAlarmGroup[] {
  const groups = new Map<string, IAlarmGroup>();
  for (const alarm of alarms) {
    const { rule, severity, step } = alarm;
    const module = moduleOf(alarm);
    const key = `${rule}\n${module}`;
    const group = groups.get(key);
    groups.set(key, {
      rule,
      module,
      severity: group && weight(group.severity) <= weight(severity) ? group.severity : severity,
      count: (group?.count ?? 0) + 1,
      first: group?.first ?? alarm,
      last: Math.max(group?.last ?? step, step)
    });
  }
  return [...groups.values()].sort(
    (a, b) =>
      weight(a.severity) - weight(b.severity) || a.first.step - b.first.step || a.first.place - b.first.place
  );
}

/** Index of a severity, the gravest 0. */
export const weight = (severity: Severity): number => SEVERITIES.indexOf(severity);

/** What all parts of the view share: one reading of the alarms. */
export abstract class HealthPane extends PartModel<HealthOptions, HealthReader> {
  readonly subject = this.t('Health');

  concerns(change: SourceChange): boolean {
    // How long a run has been healthy is reported as well.
    return this.reader.concerns(change) || (change.kind === 'rows' && change.stream === 'scalars');
  }

  async load(): Promise<Loaded> {
    return this.show(await this.reader.facts(this.chosen));
  }

  protected abstract show(facts: IHealthFacts): Loaded;
}

export type HealthChoice = Readonly<Required<HealthOptions>>;

export interface IHealthFacts {
  /** Whether something judges the run, or did. */
  readonly isJudged: boolean;
  /** How many steps were judged; null where it is unknown. */
  readonly judged: number | null;
  readonly alarms: readonly IAlarm[];
  /** Those that are muted. */
  readonly hidden: readonly IAlarm[];
  readonly chosen: readonly IAlarm[];
  readonly first: IAlarm | null;
  /** The first value that is not finite, where no alarm tells of one. */
  readonly bad: IFirstBad | null;
  /** The alarm whose tensor is drawn. */
  readonly shown: IAlarm | null;
}

/** Reads a run's alarms once for all parts of the view, and again when there are more; has its rules. */
export class HealthReader {
  constructor(
    private readonly _source: IRunSource,
    readonly settings: RuleSettings
  ) {}

  concerns(change: SourceChange): boolean {
    const concerned = change.kind === 'rows' && change.stream === 'alarms';
    if (concerned || change.kind === 'hello') {
      this._alarms.renew();
    }
    if (change.kind === 'rows' || change.kind === 'status') {
      this._bad = null;
    }
    return concerned;
  }

  async facts(options: HealthChoice): Promise<IHealthFacts> {
    const all = await this._alarms.read(this._source);
    const state = own(this._source.status?.instruments, 'monitor');
    const judged = own((state ?? {}) as Record<string, unknown>, 'judged');
    const mutes = mutesOf(monitorSettings(this._source));
    const alarms = unmuted(all, mutes);
    const first = firstAnomaly(alarms);
    const [from, to] = options.steps ?? [-Infinity, Infinity];
    const shown = alarms.find(
      each => each.name === options.name && (options.step === null || each.step === options.step)
    );
    // A picture of alarms is better than none.
    const bad = all.length > 0 ? null : await (this._bad ??= firstBad(this._source).catch(() => null));
    return {
      bad,
      judged: typeof judged === 'number' ? judged : (this._source.status?.step ?? null),
      isJudged: state !== undefined || monitorSettings(this._source) !== undefined || all.length > 0,
      alarms,
      hidden: all.filter(each => isMuted(each, mutes)),
      chosen: alarms.filter(
        each =>
          (options.severity === 'all' || each.severity === options.severity) &&
          (options.rule === null || each.rule === options.rule) &&
          each.step >= from &&
          each.step <= to
      ),
      first,
      shown: shown ?? first ?? alarms[0] ?? null
    };
  }

  private readonly _alarms = new ReadOnce(readAlarms);
  private _bad: Promise<IFirstBad | null> | null = null;
}

/** The first value of a run that is not finite: its step, and the name of what holds it. */
interface IFirstBad {
  readonly step: number;
  readonly name: string;
}

/** Points of a scalar that are asked for: the first of every stretch that is not finite is among them. */
const POINTS = 400;

/**
 * Find the first value that is not finite among scalars and statistics of tensors, and what the hub saw of
 * traced ones; null where there is none. Nobody needs to have judged the run.
 */
async function firstBad(source: IRunSource): Promise<IFirstBad | null> {
  const found = [...hubSaw(source), ...(await inScalars(source)), ...(await inStatistics(source))];
  return found.reduce<IFirstBad | null>((best, each) => (best && best.step <= each.step ? best : each), null);
}

function hubSaw({ status }: IRunSource): IFirstBad[] {
  const { first, moments } = status?.nonfinite ?? {};
  return [
    ...(moments ? [moments.first] : []),
    ...(first ? [{ step: first.step, name: `${first.flag}, layer ${first.layer}` }] : [])
  ];
}

async function inScalars(source: IRunSource): Promise<IFirstBad[]> {
  const { lines } = await readScalars(source, { points: POINTS });
  return lines.flatMap(({ name, steps, values }) => {
    const step = steps[values.findIndex(value => !Number.isFinite(value))];
    return step === undefined ? [] : [{ step, name }];
  });
}

/** Of each statistic the total over all tensors tells the step, and its tensors at that step the name. */
async function inStatistics({ moments }: IRunSource): Promise<IFirstBad[]> {
  if (moments === undefined) {
    return [];
  }
  const { stats } = await moments.index();
  const found = await Promise.all(
    stats.map(async ({ stat }) => {
      const ask = { stat, statistic: 'nonfinite', mixed: true } as const;
      const total = await groupMoments(moments, { ...ask, by: [], points: POINTS });
      const step = total.step[total.nonFinite.findIndex(count => count !== 0)];
      if (step === undefined) {
        return [];
      }
      const at = await groupMoments(moments, { ...ask, by: ['name'], steps: [step, step] });
      const [name] = at.keys[at.group[at.nonFinite.findIndex(count => count !== 0)] ?? -1] ?? [];
      return [{ step, name: String(name ?? stat) }];
    })
  );
  return found.flat();
}
