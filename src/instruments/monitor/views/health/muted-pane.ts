import { formatInteger } from '../../../../charts';
import { isMuted } from '../../store/alarms';
import type { IRunSource } from '../../../../store/source';
import type { Loaded } from '../../../../views/shared/content';
import { nothingYet } from '../../../../views/shared/states';
import { numberColumn, type ITableColumn } from '../../../../views/shared/table';
import type { IViewEnvironment } from '../../../../views/shared/view-model';
import type { HealthReader, IHealthFacts } from './health-facts';
import { HealthPane } from './health-pane';
import type { RuleSettings } from './rule-settings';
import { appliedWords } from './rule-words';

/** What is muted, and the way back. */
export class MutedPane extends HealthPane {
  constructor(
    source: IRunSource,
    env: IViewEnvironment,
    reader: HealthReader,
    private readonly _settings: RuleSettings
  ) {
    super(source, env, reader);
  }

  protected show({ hidden }: IHealthFacts): Loaded {
    const { _settings: settings, t } = this;
    const { canApply, muted } = settings;
    if (muted.length === 0) {
      return { state: nothingYet(t('Nothing is muted.'), this.actions, t) };
    }
    const counts = muted.map(each => hidden.filter(alarm => isMuted(alarm, [each])).length);
    const columns: ITableColumn[] = [
      { title: t('rule'), text: row => muted[row]?.rule ?? '*' },
      { title: t('tensors'), text: row => muted[row]?.name ?? '*' },
      numberColumn(t('alarms that are not shown'), row => counts[row] ?? 0, formatInteger),
      ...(canApply
        ? [
            {
              title: t('muted'),
              text: () => t('Unmute'),
              fields: (row: number) => [
                {
                  kind: 'button' as const,
                  id: `unmute.${row}`,
                  label: t('Unmute'),
                  isDisabled: false,
                  press: () => void settings.unmute(row)
                }
              ]
            }
          ]
        : [])
    ];
    const said = appliedWords(settings.changeOf('muted'), t);
    return {
      content: {
        recipe: null,
        body: { columns, rows: muted.length },
        extent: { x: [0, 1], y: [0, 1] },
        title: t('Muted'),
        caption: [
          t('Alarms of these are not raised while they are muted; * stands for anything.'),
          ...(said === '' ? [] : [said])
        ],
        summary: ''
      }
    };
  }
}
