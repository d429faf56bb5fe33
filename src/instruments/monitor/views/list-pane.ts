import { formatFull, formatInteger, formatNumber } from '../../../charts';
import type { IRunSource } from '../../../store/source';
import type { Loaded } from '../../../views/shared/content';
import { nothingYet } from '../../../views/shared/states';
import { numberColumn, type ITableColumn, type ITableField } from '../../../views/shared/table';
import type { IViewEnvironment } from '../../../views/shared/view-model';
import { follows, reachedFrom, type IAlarm, type IMuted } from '../store/alarms';
import type { IAlarmGroup, HealthReader, IHealthFacts } from './health-facts';
import {
  groupAlarms,
  weight,
  HealthPane,
  countWords,
  directionWords,
  severityWords,
  appliedWords
} from './health-facts';
import { mutesIn, type RuleSettings } from './rule-settings';

/** Parts of the way that are listed. */
const MOST_PARTS = 12;

/** Where the first anomaly was, and the parts of the training that it reached next, in their order. */
export class WayPane extends HealthPane {
  protected show({ alarms, first }: IHealthFacts): Loaded {
    const { t } = this;
    if (first === null) {
      return { state: nothingYet(t('There is no anomaly.'), this.actions, t) };
    }
    const reached = reachedFrom(alarms, first);
    const rows = [first, ...reached.slice(0, MOST_PARTS - 1)];
    const number = (title: string, name: 'rank' | 'microBatch'): ITableColumn =>
      numberColumn(
        title,
        row => rows[row]?.[name] ?? NaN,
        value => (value < 0 ? '–' : formatInteger(value))
      );
    const value = (title: string, name: 'expected' | 'value', none: string): ITableColumn =>
      numberColumn(
        title,
        row => rows[row]?.[name] ?? NaN,
        found => (Number.isNaN(found) ? none : formatNumber(found))
      );
    const columns: ITableColumn[] = [
      numberColumn(t('step'), row => rows[row]?.step ?? 0, formatInteger),
      { title: t('part'), text: row => directionWords(rows[row]?.direction ?? '', t) },
      {
        title: t('tensor'),
        text: row => rows[row]?.name ?? '',
        press: row => this._show(rows[row])
      },
      ...(rows.some(each => each.rank >= 0) ? [number(t('rank'), 'rank')] : []),
      ...(rows.some(each => each.microBatch >= 0) ? [number(t('micro-batch'), 'microBatch')] : []),
      { title: t('statistic'), text: row => rows[row]?.statistic ?? '' },
      value(t('value'), 'value', 'NaN'),
      value(t('should have been'), 'expected', '–'),
      { title: t('rule'), text: row => rows[row]?.rule ?? '' }
    ];
    const title =
      reached.length === 0 ? t('The first anomaly') : t('The first anomaly, and what it reached next');
    return {
      content: {
        recipe: null,
        body: { columns, rows: rows.length },
        extent: { x: [0, 1], y: [0, 1] },
        title,
        caption:
          reached.length + 1 > rows.length
            ? [t('%1 of %2 parts are listed.', rows.length, formatInteger(reached.length + 1))]
            : [],
        summary: ''
      }
    };
  }

  private _show(alarm: IAlarm | undefined): void {
    if (alarm) {
      this.pick({ name: alarm.name, step: alarm.step });
    }
  }
}

export class ListPane extends HealthPane {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    reader: HealthReader,
    private readonly _settings: RuleSettings
  ) {
    super(source, env, reader);
  }

  protected show({ alarms, chosen }: IHealthFacts): Loaded {
    const { t } = this;
    const groups = groupAlarms(chosen);
    if (groups.length === 0) {
      return { state: nothingYet(t('There are no alarms.'), this.actions, t) };
    }
    const columns: ITableColumn[] = [
      {
        title: t('severity'),
        text: row => severityWords(groups[row]?.severity ?? 'note', t),
        sortBy: row => -weight(groups[row]?.severity ?? 'note')
      },
      {
        title: t('rule'),
        text: row => groups[row]?.rule ?? '',
        sortBy: row => groups[row]?.rule ?? '',
        press: row => this.pick({ rule: groups[row]?.rule ?? null })
      },
      {
        title: t('module'),
        text: row => groups[row]?.module ?? '',
        sortBy: row => groups[row]?.module ?? '',
        press: row => {
          const first = groups[row]?.first;
          if (first) {
            this.pick({ name: first.name, step: first.step });
          }
        }
      },
      numberColumn(t('alarms'), row => groups[row]?.count ?? 0, formatInteger),
      numberColumn(t('first step'), row => groups[row]?.first.step ?? 0, formatInteger),
      numberColumn(t('last step'), row => groups[row]?.last ?? 0, formatInteger),
      numberColumn(
        t('first value'),
        row => groups[row]?.first.value ?? NaN,
        value => formatFull(Number(value.toPrecision(4)))
      ),
      ...(groups.some(({ first }) => follows(first))
        ? [{ title: t('follows from'), text: (row: number) => this._cause(alarms, groups[row]?.first) }]
        : []),
      { title: t('what it means'), text: row => groups[row]?.first.sentence ?? '' },
      ...(this._settings.canApply
        ? [
            {
              title: t('mute'),
              text: () => '',
              fields: (row: number): readonly ITableField[] => this._mutes(groups[row])
            }
          ]
        : [])
    ];
    return {
      content: {
        recipe: null,
        body: { columns, rows: groups.length },
        extent: { x: [0, 1], y: [0, 1] },
        title: t('Alarms: %1', countWords(chosen, t)),
        // What is muted says so itself, where anything is.
        caption: this._settings.muted.length > 0 ? [] : [appliedWords(this._settings.changeOf('muted'), t)],
        summary: ''
      }
    };
  }

  /** Name the alarm that another follows from. */
  private _cause(alarms: readonly IAlarm[], alarm: IAlarm | undefined): string {
    const first = alarm && follows(alarm) ? alarms.find(({ cause }) => cause === alarm.cause) : undefined;
    return first && first !== alarm ? this.t('%1, step %2', first.rule, formatInteger(first.step)) : '';
  }

  private _mutes(group: IAlarmGroup | undefined): ITableField[] {
    if (!group) {
      return [];
    }
    const { t } = this;
    const { rule, module, first } = group;
    const button = (label: string, title: string, muted: readonly IMuted[]): ITableField => ({
      kind: 'button',
      id: `mute.${rule}.${label}.${module}`,
      label,
      title,
      isDisabled: false,
      press: () => void this._settings.mute(...muted)
    });
    return [
      button(t('Here'), t('Mute %1 in %2', rule, module), mutesIn(rule, module, first.name)),
      button(t('Rule'), t('Mute %1 everywhere', rule), [{ rule }])
    ];
  }
}
