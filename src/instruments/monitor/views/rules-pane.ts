import { formatInteger, formatNumber, formatFull } from '../../../charts';
import type { HealthOptions } from '../../../protocol/views.generated';
import type { SourceChange } from '../../../store/source';
import { tableOnly, type Loaded, type INote } from '../../../views/shared/content';
import { said } from '../../../views/shared/said';
import type { Translate } from '../../../views/shared/translate';
import { nothingYet } from '../../../views/shared/states';
import { numberColumn, tableOf, type ITableColumn, type ITableField } from '../../../views/shared/table';
import { PartModel } from '../../../views/shared/view-model';
import { isMuted, follows, reachedFrom, type IAlarm, type IMuted } from '../store/alarms';
import type { HealthReader, IHealthFacts, IAlarmGroup } from './health-facts';
import {
  appliedWords,
  countedWords,
  HealthPane,
  groupAlarms,
  weight,
  countWords,
  directionWords,
  statisticWords,
  severityWords
} from './health-facts';
import { type IRuleInfo, mutesIn } from './rule-settings';

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
    const number = (title: string, name: 'rank' | 'microBatch'): ITableColumn<IAlarm> =>
      numberColumn(
        title,
        row => row[name],
        value => (value < 0 ? '–' : formatInteger(value))
      );
    const value = (title: string, name: 'expected' | 'value', none: string): ITableColumn<IAlarm> =>
      numberColumn(
        title,
        row => row[name],
        found => (Number.isNaN(found) ? none : formatNumber(found))
      );
    const columns: ITableColumn<IAlarm>[] = [
      numberColumn(t('step'), ({ step }) => step, formatInteger),
      { title: t('part'), text: ({ direction }) => directionWords(direction, t) },
      {
        title: t('tensor'),
        text: ({ name }) => name,
        press: ({ name, step }) => this.pick({ name, step })
      },
      ...(rows.some(({ rank }) => rank >= 0) ? [number(t('rank'), 'rank')] : []),
      ...(rows.some(({ microBatch }) => microBatch >= 0) ? [number(t('micro-batch'), 'microBatch')] : []),
      { title: t('statistic'), text: ({ statistic }) => statisticWords(statistic, t) },
      value(t('value'), 'value', 'NaN'),
      value(t('should have been'), 'expected', '–'),
      { title: t('rule'), text: ({ rule }) => rule }
    ];
    const title =
      reached.length === 0 ? t('The first anomaly') : t('The first anomaly, and what it reached next');
    return {
      content: {
        ...tableOnly(tableOf(rows, columns)),
        title,
        caption:
          reached.length + 1 > rows.length
            ? [t('%1 of %2 parts are listed.', rows.length, formatInteger(reached.length + 1))]
            : [],
        summary: ''
      }
    };
  }
}

export class ListPane extends HealthPane {
  protected show({ alarms, chosen }: IHealthFacts): Loaded {
    const { t } = this;
    const groups = groupAlarms(chosen);
    if (groups.length === 0) {
      return { state: nothingYet(t('There are no alarms.'), this.actions, t) };
    }
    const columns: ITableColumn<IAlarmGroup>[] = [
      {
        title: t('severity'),
        text: ({ severity }) => severityWords(severity, t),
        sortBy: ({ severity }) => -weight(severity)
      },
      {
        title: t('rule'),
        text: ({ rule }) => rule,
        sortBy: ({ rule }) => rule,
        press: ({ rule }) => this.pick({ rule })
      },
      {
        title: t('module'),
        text: ({ module }) => module,
        sortBy: ({ module }) => module,
        press: ({ first: { name, step } }) => this.pick({ name, step })
      },
      numberColumn(t('alarms'), ({ count }) => count, formatInteger),
      numberColumn(t('first step'), ({ first }) => first.step, formatInteger),
      numberColumn(t('last step'), ({ last }) => last, formatInteger),
      numberColumn(
        t('first value'),
        ({ first }) => first.value,
        value => formatFull(Number(value.toPrecision(4)))
      ),
      ...(groups.some(({ first }) => follows(first))
        ? [{ title: t('follows from'), text: ({ first }: IAlarmGroup) => this._cause(alarms, first) }]
        : []),
      { title: t('what it means'), text: ({ first }) => said(first.sentence, t) },
      ...(this.reader.settings.canApply
        ? [{ title: t('mute'), text: () => '', fields: (group: IAlarmGroup) => this._mutes(group) }]
        : [])
    ];
    return {
      content: {
        ...tableOnly(tableOf(groups, columns)),
        title: t('Alarms: %1', countWords(chosen, t)),
        // What is muted says so itself, where anything is.
        caption:
          this.reader.settings.muted.length > 0
            ? []
            : [appliedWords(this.reader.settings.changeOf('muted'), t)],
        summary: ''
      }
    };
  }

  /** Name the alarm that another follows from. */
  private _cause(alarms: readonly IAlarm[], alarm: IAlarm): string {
    const first = follows(alarm) ? alarms.find(({ cause }) => cause === alarm.cause) : undefined;
    return first && first !== alarm ? this.t('%1, step %2', first.rule, formatInteger(first.step)) : '';
  }

  private _mutes({ rule, module, first }: IAlarmGroup): ITableField[] {
    const { t } = this;
    const button = (label: string, title: string, muted: readonly IMuted[]): ITableField => ({
      kind: 'button',
      id: `mute.${rule}.${label}.${module}`,
      label,
      title,
      isDisabled: false,
      press: () => void this.reader.settings.mute(...muted)
    });
    return [
      button(t('Here'), t('Mute %1 in %2', rule, module), mutesIn(rule, module, first.name)),
      button(t('Rule'), t('Mute %1 everywhere', rule), [{ rule }])
    ];
  }
}

/** What is muted, and the way back. */
export class MutedPane extends HealthPane {
  protected show({ hidden }: IHealthFacts): Loaded {
    const { t } = this;
    const { settings } = this.reader;
    const { canApply, muted } = settings;
    if (muted.length === 0) {
      return { state: nothingYet(t('Nothing is muted.'), this.actions, t) };
    }
    const rows = muted.map((each, at) => ({
      ...each,
      at,
      count: hidden.filter(alarm => isMuted(alarm, [each])).length
    }));
    const columns: ITableColumn<(typeof rows)[number]>[] = [
      { title: t('rule'), text: ({ rule }) => rule ?? '*' },
      { title: t('tensors'), text: ({ name }) => name ?? '*' },
      numberColumn(t('alarms that are not shown'), ({ count }) => count, formatInteger),
      ...(canApply
        ? [
            {
              title: t('muted'),
              text: () => t('Unmute'),
              fields: ({ at }: { readonly at: number }) => [
                {
                  kind: 'button' as const,
                  id: `unmute.${at}`,
                  label: t('Unmute'),
                  isDisabled: false,
                  press: () => void settings.unmute(at)
                }
              ]
            }
          ]
        : [])
    ];
    const sentence = appliedWords(settings.changeOf('muted'), t);
    return {
      content: {
        ...tableOnly(tableOf(rows, columns)),
        title: t('Muted'),
        caption: [
          t('Alarms of these are not raised while they are muted; * stands for anything.'),
          ...(sentence === '' ? [] : [sentence])
        ],
        summary: ''
      }
    };
  }
}

/** Every rule with its switch and its numbers, which can be tried on the recorded past and put in force. */
export class RulesPane extends PartModel<HealthOptions, HealthReader> {
  readonly subject = this.t('Rules');

  concerns(_: SourceChange): boolean {
    return false;
  }

  load(): Promise<Loaded> {
    const { t } = this;
    const { settings } = this.reader;
    const rules = settings.rules.map(rule => ({
      ...inWords(rule, t),
      parameters: rule.parameters.map(each => inWords(each, t))
    }));
    if (rules.length === 0) {
      return Promise.resolve({ state: nothingYet(t('No rules are announced.'), this.actions, t) });
    }
    const isOn = ({ name }: IRuleInfo): boolean => settings.valueOf(name, 'on') !== false;
    const fieldsOf = (
      fields: (rule: IRuleInfo) => readonly ITableField[]
    ): Partial<ITableColumn<IRuleInfo>> => (settings.canEdit ? { fields } : {});
    const columns: ITableColumn<IRuleInfo>[] = [
      {
        title: t('on'),
        text: rule => (isOn(rule) ? t('on') : t('off')),
        ...fieldsOf(rule => [
          {
            kind: 'switch',
            id: `${rule.name}.on`,
            label: t('%1 judges', rule.title),
            value: isOn(rule),
            change: value => settings.edit(rule.name, 'on', value)
          }
        ])
      },
      { title: t('rule'), text: ({ title }) => title, sortBy: ({ title }) => title },
      { title: t('alarms in the recording'), text: ({ name }) => countedWords(settings, name, t) },
      {
        title: t('parameters'),
        text: rule =>
          rule.parameters
            .map(({ name, title }) => `${title} ${shown(settings.valueOf(rule.name, name))}`)
            .join(', '),
        ...fieldsOf(rule => this._numbers(rule)),
        wraps: true
      },
      { title: t('what it means'), text: ({ description }) => description, wraps: true }
    ];
    return Promise.resolve({
      content: {
        ...tableOnly(tableOf(rules, columns)),
        title: t('Rules'),
        notes: this._notes(),
        caption: this._caption(),
        summary: ''
      }
    });
  }

  private _numbers({ name: rule, parameters }: IRuleInfo): ITableField[] {
    const { settings } = this.reader;
    return parameters.map(({ name, title, description, ...bounds }) => ({
      kind: 'number',
      id: `${rule}.${name}`,
      label: title,
      title: description,
      value: Number(settings.valueOf(rule, name)),
      isEdited: settings.isEdited(rule, name),
      change: value => settings.edit(rule, name, value),
      ...bounds
    }));
  }

  private _notes(): INote[] {
    const { t } = this;
    const { settings } = this.reader;
    if (settings.edited.length === 0) {
      return [];
    }
    const busy = ['sent', 'accepted'].includes(settings.changeOf('rules').kind);
    const text = settings.canApply
      ? t('Edited: %1.', settings.edited.join(', '))
      : t(
          'Edited: %1. Only a run that trains now takes settings; these numbers are tried on its recording.',
          settings.edited.join(', ')
        );
    return [
      {
        text,
        action: {
          label: t('Apply'),
          isDisabled: busy || !settings.canApply,
          run: () => void settings.apply()
        }
      },
      { text: '', action: { label: t('Revert'), isDisabled: busy, run: () => settings.revert() } }
    ];
  }

  private _caption(): string[] {
    const { t } = this;
    const { settings } = this.reader;
    const { counts } = settings;
    const sentence = appliedWords(settings.changeOf('rules'), t);
    return [
      ...(sentence === '' ? [] : [sentence]),
      ...(counts.kind === 'counted'
        ? [
            counts.edited.whole && counts.inForce.whole
              ? t(
                  'Counted in %1 recorded steps: first as it is in force, then as it is edited.',
                  formatInteger(counts.edited.steps)
                )
              : t(
                  'Counted for 30 s, up to the step number %1 of the recording: first as it is in force, then as it is edited.',
                  formatInteger(Math.min(counts.edited.steps, counts.inForce.steps))
                ),
            t('A recording has whole tensors, so rules that compare ranks count nothing there.')
          ]
        : counts.kind === 'failed'
          ? [t('The alarms could not be counted. %1', counts.message)]
          : counts.kind === 'unrecorded'
            ? [t('Nothing of this run is recorded, so no alarms are counted.')]
            : [])
    ];
  }
}

const shown = (value: unknown): string => (typeof value === 'number' ? formatNumber(value) : '–');

/** A rule with its words in the person's language, as `rule-words` has them; those of others stay. */
function inWords<T extends { readonly title: string; readonly description: string }>(it: T, t: Translate): T {
  const { title, description: meaning } = it;
  // A place of theirs stands for nothing.
  return /%\d/.test(title + meaning) ? it : { ...it, title: t(title), description: t(meaning) };
}
